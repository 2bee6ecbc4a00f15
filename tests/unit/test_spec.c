/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* VMA_SPEC: every profile by each of its names, and who wins over it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "params_env.h"
#include "runtime/libc.h"

/* From the reference, not from the table under test. */
struct expected {
	const char *variable;
	int value;
};

static void profile_is(const char *const *names, const struct expected *e, const char *affinity)
{
	char env[64];
	unsigned i, n;

	for (; *names; names++) {
		snprintf(env, sizeof(env), "VMA_SPEC=%s", *names);
		load(env);
		assert_int_equal(captured_lines(), 0);
		for (n = 0; e[n].variable; n++) {
			if (value_of(row_of(e[n].variable)) != e[n].value)
				fail_msg("%s: %s is %d, not %d", *names, e[n].variable,
					 value_of(row_of(e[n].variable)), e[n].value);
		}
		assert_string_equal(params.internal_thread_affinity, affinity);
		printf("    %s: %u values\n", *names, n);
		/* Nothing else differs from its default. */
		for (i = 0; i < param_rows_count; i++) {
			if (param_rows[i].type == TYPE_STR ||
			    !strcmp(param_rows[i].variable, "VMA_SPEC") ||
			    value_of(&param_rows[i]) == param_rows[i].def)
				continue;
			for (n = 0; e[n].variable && strcmp(e[n].variable, param_rows[i].variable);
			     n++)
				;
			if (!e[n].variable)
				fail_msg("%s changes %s to %d", *names, param_rows[i].variable,
					 value_of(&param_rows[i]));
		}
	}
}

#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define ENDLESS_POLL                                                                               \
	{"VMA_RX_POLL", -1}, {"VMA_CQ_MODERATION_ENABLE", 0},                                      \
	{                                                                                          \
		"VMA_CQ_AIM_INTERVAL_MSEC", 0                                                      \
	}

static void profiles_for_latency(void **state)
{
	static const struct expected latency[] = {
		ENDLESS_POLL,
		{"VMA_TX_COALESCE", 0},
		{"VMA_TX_WRE", 256},
		{"VMA_TX_WRE_BATCHING", 4},
		{"VMA_RX_WRE", 256},
		{"VMA_RX_WRE_BATCHING", 4},
		{"VMA_SELECT_POLL", -1},
		{"VMA_RX_PREFETCH_BYTES_BEFORE_POLL", 256},
		{"VMA_SELECT_POLL_OS_RATIO", 1},
		{"VMA_SELECT_SKIP_OS", 1},
		{"VMA_AVOID_SYS_CALLS_ON_TCP_FD", 1},
		{"VMA_GRO_STREAMS_MAX", 0},
		{"VMA_PROGRESS_ENGINE_INTERVAL", 100},
		{"VMA_CQ_KEEP_QP_FULL", 0},
		{"VMA_THREAD_MODE", 0},
		{"VMA_MEM_ALLOC_TYPE", 2},
		{"VMA_TCP_NODELAY", 1},
		{"VMA_RING_DEV_MEM_TX", 16384},
		{"VMA_CQ_AIM_MAX_COUNT", 128},
		{NULL, 0},
	};
	static const struct expected ultra[] = {
		ENDLESS_POLL,
		{"VMA_TX_SEGS_TCP", 512},
		{"VMA_TX_BUFS", 512},
		{"VMA_TX_COALESCE", 0},
		{"VMA_TX_WRE", 256},
		{"VMA_TX_WRE_BATCHING", 4},
		{"VMA_RX_BUFS", 1024},
		{"VMA_RX_WRE", 256},
		{"VMA_RX_WRE_BATCHING", 4},
		{"VMA_SELECT_POLL", -1},
		{"VMA_RX_UDP_POLL_OS_RATIO", 0},
		{"VMA_RX_PREFETCH_BYTES_BEFORE_POLL", 256},
		{"VMA_SELECT_POLL_OS_RATIO", 0},
		{"VMA_SELECT_SKIP_OS", 0},
		{"VMA_AVOID_SYS_CALLS_ON_TCP_FD", 1},
		{"VMA_GRO_STREAMS_MAX", 0},
		{"VMA_PROGRESS_ENGINE_INTERVAL", 0},
		{"VMA_CQ_KEEP_QP_FULL", 0},
		{"VMA_THREAD_MODE", 0},
		{"VMA_MEM_ALLOC_TYPE", 2},
		{"VMA_TCP_NODELAY", 1},
		{"VMA_RING_DEV_MEM_TX", 16384},
		{"VMA_CQ_AIM_MAX_COUNT", 128},
		{NULL, 0},
	};
	static const struct expected multi[] = {
		ENDLESS_POLL,
		{"VMA_SELECT_POLL", -1},
		{"VMA_SELECT_POLL_OS_RATIO", 0},
		{"VMA_SELECT_SKIP_OS", 0},
		{"VMA_MEM_ALLOC_TYPE", 2},
		{"VMA_RING_ALLOCATION_LOGIC_TX", 20},
		{"VMA_RING_ALLOCATION_LOGIC_RX", 20},
		{"VMA_RX_POLL_ON_TX_TCP", 1},
		{"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", 1},
		{NULL, 0},
	};

	(void)state;
	profile_is(NAMES("latency", "LATENCY", "15"), latency, "0");
	profile_is(NAMES("ultra-latency", "10"), ultra, "0");
	profile_is(NAMES("multi_ring_latency"), multi, "-1");
}

static void profiles_for_applications(void **state)
{
	static const struct expected none[] = {{NULL, 0}};
	static const struct expected west[] = {
		{"VMA_SPEC_PARAM1", 5000},   {"VMA_SPEC_PARAM2", 50},
		{"VMA_RX_POLL", 1},	     {"VMA_RX_UDP_POLL_OS_RATIO", 100},
		{"VMA_SELECT_POLL", 100000}, {"VMA_SELECT_POLL_OS_RATIO", 100},
		{"VMA_SELECT_SKIP_OS", 50},  {NULL, 0},
	};
	static const struct expected wombat[] = {
		{"VMA_SPEC_PARAM1", 5000},  {"VMA_SPEC_PARAM2", 50},
		{"VMA_RX_POLL", 1},	    {"VMA_RX_UDP_POLL_OS_RATIO", 100},
		{"VMA_SELECT_POLL", 0},	    {"VMA_SELECT_POLL_OS_RATIO", 100},
		{"VMA_SELECT_SKIP_OS", 20}, {NULL, 0},
	};
	static const struct expected mcd[] = {
		{"VMA_RING_ALLOCATION_LOGIC_TX", 31},
		{"VMA_RING_ALLOCATION_LOGIC_RX", 31},
		{NULL, 0},
	};
	static const struct expected mcd_irq[] = {
		{"VMA_RING_ALLOCATION_LOGIC_TX", 31},
		{"VMA_RING_ALLOCATION_LOGIC_RX", 31},
		{"VMA_RX_POLL", 1},
		{"VMA_SELECT_POLL", 0},
		{"VMA_CQ_MODERATION_ENABLE", 0},
		{NULL, 0},
	};
	static const struct expected rti[] = {ENDLESS_POLL, {NULL, 0}};
	static const struct expected p7750[] = {
		ENDLESS_POLL,
		{"VMA_TX_BUFS", 8192},
		{"VMA_BUFFER_BATCHING_MODE", 0},
		{"VMA_RX_BUFS", 204800},
		{"VMA_SELECT_POLL", -1},
		{"VMA_SELECT_POLL_OS_RATIO", 0},
		{"VMA_AVOID_SYS_CALLS_ON_TCP_FD", 1},
		{"VMA_TCP_3T_RULES", 1},
		{"VMA_TCP_CTL_THREAD", 2},
		{"VMA_TRACELEVEL", LOG_WARN},
		{"VMA_STATS_FD_NUM", 1024},
		{NULL, 0},
	};

	(void)state;
	profile_is(NAMES("none", "0"), none, "-1");
	profile_is(NAMES("29west", "29"), west, "-1");
	profile_is(NAMES("wombat_fh", "554"), wombat, "-1");
	profile_is(NAMES("mcd", "623"), mcd, "-1");
	profile_is(NAMES("mcd-irq", "624"), mcd_irq, "-1");
	profile_is(NAMES("rti", "784"), rti, "-1");
	profile_is(NAMES("7750"), p7750, "0x3");
}

static void a_variable_wins_over_the_profile(void **state)
{
	(void)state;
	load("VMA_SPEC=latency", "VMA_RX_POLL=5", "VMA_INTERNAL_THREAD_AFFINITY=1-2",
	     "VMA_TX_WRE=oops");
	assert_int_equal(params.rx_poll, 5);
	assert_int_equal(params.select_poll, -1);
	assert_string_equal(params.internal_thread_affinity, "1-2");
	assert_int_equal(params.tx_wre, 256); /* what the profile says is used instead */
	assert_true(captured_has("VMA_TX_WRE=\"oops\" is not a number; 256 is used"));
	load("VMA_SPEC=lateny");
	assert_int_equal(params.spec, SPEC_NONE);
	assert_true(captured_has("VMA_SPEC=\"lateny\" is not one of its values; none is used"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(profiles_for_latency),
		cmocka_unit_test(profiles_for_applications),
		cmocka_unit_test(a_variable_wins_over_the_profile),
	};

	return cmocka_run_group_tests(tests, capture_setup, capture_teardown);
}
