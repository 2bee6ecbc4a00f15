/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* stats/sockopt_names.c: every option that the library knows has its name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "stats/stats.h"
#include "vma/sockopt_numbers.h"

#define OPTION(level, name, done) {level, name, #name},
static const struct {
	int level, opt;
	const char *name;
} known[] = {
#include "socket/tcp/option/rows.def"
};

static void every_option_of_the_table_has_its_name(void **state)
{
	char text[SOCKOPT_NAME];

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		assert_string_equal(sockopt_name(text, known[i].level, known[i].opt),
				    known[i].name);
}

static void what_is_not_known_is_shown_by_its_numbers(void **state)
{
	char text[SOCKOPT_NAME];

	(void)state;
	assert_string_equal(sockopt_name(text, IPPROTO_TCP, 9999), "IPPROTO_TCP, option 9999");
	assert_string_equal(sockopt_name(text, 263, 1), "level 263, option 1");
	assert_string_equal(sockopt_name(text, IPPROTO_UDP, 103), "UDP_SEGMENT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_option_of_the_table_has_its_name),
		cmocka_unit_test(what_is_not_known_is_shown_by_its_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
