/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "files.h"

#include <stddef.h>

#include "script.h"

extern const struct conform_case cases_linux[];
extern const struct conform_case cases_linux_send[];
extern const struct conform_case cases_linux_route[];
extern const struct conform_case cases_rfc4821[];
extern const struct conform_case cases_rfc1122[];
extern const struct conform_case cases_rfc2018[];
extern const struct conform_case cases_rfc5961[];
extern const struct conform_case cases_rfc7323[];
extern const struct conform_case cases_rfc7413[];
extern const struct conform_case cases_rfc8985[];
extern const struct conform_case cases_rfc9293_close[];
extern const struct conform_case cases_rfc9293_data[];
extern const struct conform_case cases_rfc9293_open[];
extern const struct conform_case cases_rfc_more[];
extern const struct conform_case cases_tcp_info[];

const struct conform_case *const conform_files[] = {
	cases_linux,	     cases_linux_send,	 cases_linux_route,  cases_rfc1122,
	cases_rfc2018,	     cases_rfc5961,	 cases_rfc7323,	     cases_rfc8985,
	cases_rfc9293_close, cases_rfc9293_data, cases_rfc9293_open, cases_rfc_more,
	cases_rfc4821,	     cases_tcp_info,	 cases_rfc7413,	     NULL,
};
