/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Where the program's receive callbacks are run. */
#include "stack/internal.h"

#include <errno.h>

_Atomic unsigned stacks_unshown;
_Atomic bool stacks_have_callbacks;
__thread bool stack_showing;

bool stacks_show_slow(void)
{
	int err = errno;
	bool here;

	stack_showing = true;
	here = stack_udp_ops->show() && stack_tcp_ops->show();
	stack_showing = false;
	errno = err;
	return here;
}
