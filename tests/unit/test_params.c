/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VMA_* parameters: defaults, ranges, profiles, what is said about values and names that are wrong,
 * the banner.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "params_env.h"
#include "runtime/libc.h"
#include "runtime/process_mark.h"
#include "config/params.h"
#include "config/params_table.h"
#include "vma/version.h"

/* Written down from the reference, not from the table under test. */
static const struct {
	const char *variable, *value;
} defaults[] = {
	{"VMA_TRACELEVEL", "3"},
	{"VMA_LOG_DETAILS", "0"},
	{"VMA_LOG_COLORS", "1"},
	{"VMA_LOG_FILE", ""},
	{"VMA_SPEC", "0"},
	{"VMA_SPEC_PARAM1", "1"},
	{"VMA_SPEC_PARAM2", "1"},
	{"VMA_STATS_FILE", ""},
	{"VMA_STATS_SHMEM_DIR", "/tmp/"},
	{"VMA_STATS_FD_NUM", "100"},
	{"VMA_VMAD_NOTIFY_DIR", "/tmp/vma"},
	{"VMA_CONFIG_FILE", "/etc/libvma.conf"},
	{"VMA_APPLICATION_ID", "VMA_DEFAULT_APPLICATION_ID"},
	{"VMA_CPU_USAGE_STATS", "0"},
	{"VMA_HANDLE_SIGINTR", "0"},
	{"VMA_HANDLE_SIGSEGV", "0"},
	{"VMA_EXCEPTION_HANDLING", "-1"},
	{"VMA_TX_SEGS_TCP", "1000000"},
	{"VMA_TX_BUFS", "200000"},
	{"VMA_TX_WRE", "2048"},
	{"VMA_TX_WRE_BATCHING", "64"},
	{"VMA_TX_MAX_INLINE", "204"},
	{"VMA_TX_MC_LOOPBACK", "1"},
	{"VMA_TX_NONBLOCKED_EAGAINS", "0"},
	{"VMA_TX_PREFETCH_BYTES", "256"},
	{"VMA_RING_ALLOCATION_LOGIC_TX", "0"},
	{"VMA_RING_ALLOCATION_LOGIC_RX", "0"},
	{"VMA_RING_MIGRATION_RATIO_TX", "100"},
	{"VMA_RING_MIGRATION_RATIO_RX", "100"},
	{"VMA_RING_LIMIT_PER_INTERFACE", "0"},
	{"VMA_RING_DEV_MEM_TX", "0"},
	{"VMA_RX_BUFS", "200000"},
	{"VMA_RX_WRE", "16000"},
	{"VMA_RX_WRE_BATCHING", "64"},
	{"VMA_RX_BYTES_MIN", "65536"},
	{"VMA_RX_POLL", "-2"},
	{"VMA_RX_POLL_INIT", "0"},
	{"VMA_RX_UDP_POLL_OS_RATIO", "100"},
	{"VMA_RX_POLL_YIELD", "0"},
	{"VMA_RX_PREFETCH_BYTES", "256"},
	{"VMA_RX_PREFETCH_BYTES_BEFORE_POLL", "0"},
	{"VMA_RX_CQ_DRAIN_RATE_NSEC", "0"},
	{"VMA_RX_POLL_ON_TX_TCP", "0"},
	{"VMA_GRO_STREAMS_MAX", "32"},
	{"VMA_TCP_3T_RULES", "0"},
	{"VMA_UDP_3T_RULES", "1"},
	{"VMA_ETH_MC_L2_ONLY_RULES", "0"},
	{"VMA_MC_FORCE_FLOWTAG", "0"},
	{"VMA_HW_TS_CONVERSION", "3"},
	{"VMA_SELECT_POLL", "-2"},
	{"VMA_SELECT_POLL_OS_FORCE", "0"},
	{"VMA_SELECT_POLL_OS_RATIO", "10"},
	{"VMA_SELECT_SKIP_OS", "1"},
	{"VMA_PROGRESS_ENGINE_INTERVAL", "10"},
	{"VMA_PROGRESS_ENGINE_WCE_MAX", "10000"},
	{"VMA_CQ_MODERATION_ENABLE", "1"},
	{"VMA_CQ_MODERATION_COUNT", "48"},
	{"VMA_CQ_MODERATION_PERIOD_USEC", "50"},
	{"VMA_CQ_AIM_MAX_COUNT", "560"},
	{"VMA_CQ_AIM_MAX_PERIOD_USEC", "250"},
	{"VMA_CQ_AIM_INTERVAL_MSEC", "250"},
	{"VMA_CQ_AIM_INTERRUPTS_RATE_PER_SEC", "5000"},
	{"VMA_CQ_POLL_BATCH_MAX", "16"},
	{"VMA_CQ_KEEP_QP_FULL", "1"},
	{"VMA_QP_COMPENSATION_LEVEL", "256"},
	{"VMA_OFFLOADED_SOCKETS", "1"},
	{"VMA_TIMER_RESOLUTION_MSEC", "10"},
	{"VMA_TCP_TIMER_RESOLUTION_MSEC", "100"},
	{"VMA_TCP_CTL_THREAD", "0"},
	{"VMA_TCP_TIMESTAMP_OPTION", "2"},
	{"VMA_TCP_NODELAY", "0"},
	{"VMA_TCP_QUICKACK", "0"},
	{"VMA_TCP_CC_ALGO", "0"},
	{"VMA_TCP_MAX_SYN_RATE", "0"},
	{"VMA_DEFERRED_CLOSE", "0"},
	{"VMA_AVOID_SYS_CALLS_ON_TCP_FD", "0"},
	{"VMA_ALLOW_PRIVILEGED_SOCK_OPT", "1"},
	{"VMA_WAIT_AFTER_JOIN_MSEC", "0"},
	{"VMA_THREAD_MODE", "1"},
	{"VMA_BUFFER_BATCHING_MODE", "1"},
	{"VMA_MEM_ALLOC_TYPE", "1"},
	{"VMA_INTERNAL_THREAD_AFFINITY", "-1"},
	{"VMA_INTERNAL_THREAD_CPUSET", ""},
	{"VMA_INTERNAL_THREAD_ARM_CQ", "0"},
	{"VMA_NEIGH_UC_ARP_QUATA", "3"},
	{"VMA_NEIGH_UC_ARP_DELAY_MSEC", "10000"},
	{"VMA_NEIGH_NUM_ERR_RETRIES", "1"},
	{"VMA_NETLINK_TIMER", "10000"},
	{"VMA_FORK", "1"},
	{"VMA_BF", "1"},
	{"VMA_CLOSE_ON_DUP2", "1"},
	{"VMA_MTU", "0"},
	{"VMA_MSS", "0"},
	{"VMA_SOCKETXTREME", "0"},
	{"VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", "0"},
	{"VMA_TIME_MEASURE_NUM_SAMPLES", "10000"},
	{"VMA_TIME_MEASURE_DUMP_FILE", "/tmp/VMA_inst.dump"},
	{"VMA_DBG_SEND_MCPKT_COUNTER", "0"},
	{"VMA_DBG_SEND_MCPKT_MCGROUP", ""},
	{"VMA_RING_TYPE", "0"},
	{"VMA_XDP_MODE", "0"},
	{"VMA_XDP_BUSY_POLL", "0"},
	{"VMA_XDP_METADATA", "0"},
	{"VMA_CQE_COMPRESSION", "0"},
	{"VMA_STRQ", "0"},
	{"VMA_OFFLOAD_LOOPBACK", "0"},
	{"VMA_TX_COALESCE", "1"},
	{"VMA_CROWD_TO_KERNEL", "1"},
};

static void every_default(void **state)
{
	const struct param_row *row;
	char value[100];
	unsigned i;

	(void)state;
	capture_clear();
	params_reload(NULL);
	for (i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
		row = row_of(defaults[i].variable);
		if (!row) {
			fail_msg("%s is not in the table", defaults[i].variable);
			continue;
		}
		if (row->type == TYPE_STR)
			snprintf(value, sizeof(value), "%s", *param_str(&params, row));
		else
			snprintf(value, sizeof(value), "%d", value_of(row));
		if (strcmp(value, defaults[i].value))
			fail_msg("%s is %s, not %s", defaults[i].variable, value,
				 defaults[i].value);
	}
	assert_int_equal(param_rows_count, i);
	printf("    %u parameters, none missing, none too many\n", i);
}

static void names_fields_and_help_are_in_order(void **state)
{
	unsigned i, j;
	const char *c;

	(void)state;
	for (i = 0; i < param_rows_count; i++) {
		assert_memory_equal(param_rows[i].variable, "VMA_", 4);
		for (c = param_rows[i].variable; *c; c++)
			assert_true((*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
				    *c == '_');
		assert_true(strlen(param_rows[i].help) > 10);
		for (j = 0; j < i; j++) {
			assert_string_not_equal(param_rows[i].variable, param_rows[j].variable);
			assert_string_not_equal(param_rows[i].label, param_rows[j].label);
			assert_int_not_equal(param_rows[i].offset, param_rows[j].offset);
		}
		if (param_rows[i].type == TYPE_INT || param_rows[i].type == TYPE_BOOL)
			assert_in_range(param_rows[i].def - (long)param_rows[i].min, 0,
					param_rows[i].max - (long)param_rows[i].min);
		if (param_rows[i].type == TYPE_ENUM)
			assert_non_null(param_word_of(&param_rows[i], param_rows[i].def));
	}
	for (i = 0; i < param_profiles_count; i++) {
		for (j = 0;
		     j < param_rows_count && param_rows[j].offset != param_profiles[i].offset; j++)
			;
		assert_int_not_equal(j, param_rows_count);
		assert_int_equal(param_rows[j].type == TYPE_STR, param_profiles[i].text != NULL);
		if (param_rows[j].type == TYPE_INT || param_rows[j].type == TYPE_BOOL)
			assert_in_range(param_profiles[i].value - (long)param_rows[j].min, 0,
					param_rows[j].max - (long)param_rows[j].min);
	}
}

/*
 * What a value becomes because of the other parameters' defaults, where that is not the value
 * itself.
 */
static int settled(const struct param_row *row, int value)
{
	static const struct {
		const char *variable;
		int value, becomes;
	} t[] = {
		{"VMA_TX_WRE", 2, 128},
		{"VMA_TX_WRE", INT_MAX, 8192},
		{"VMA_RX_WRE", 2, 128},
		{"VMA_RX_WRE", INT_MAX, 32768},
		{"VMA_CQ_MODERATION_COUNT", INT_MAX, 8000},
		{"VMA_CQ_AIM_MAX_COUNT", INT_MAX, 8000},
		{"VMA_QP_COMPENSATION_LEVEL", 1, 64},
		{"VMA_TCP_TIMER_RESOLUTION_MSEC", 1, 10},
	};
	unsigned i;

	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++)
		if (!strcmp(t[i].variable, row->variable) && t[i].value == value)
			return t[i].becomes;
	return value;
}

/* Sets row to value; true when that was warned of by name. */
static bool set_row(const struct param_row *row, const char *value)
{
	char env[200];

	snprintf(env, sizeof(env), "%s=%s", row->variable, value);
	load(env);
	snprintf(env, sizeof(env), " VMA WARNING: %s=", row->variable);
	return strstr(captured(), env) != NULL;
}

static bool set_int(const struct param_row *row, long long value)
{
	char text[40];

	snprintf(text, sizeof(text), "%lld", value);
	return set_row(row, text);
}

static void every_range_end(void **state)
{
	const struct param_row *row;
	unsigned n = 0;
	int ends[2];

	(void)state;
	for (row = param_rows; row < param_rows + param_rows_count; row++) {
		if ((row->type != TYPE_INT && row->type != TYPE_BOOL) || row->form & MODE)
			continue;
		n++;
		ends[0] = row->min;
		ends[1] = row->max;
		for (int i = 0; i < 2; i++) {
			bool warned = set_int(row, ends[i]);

			assert_int_equal(value_of(row), settled(row, ends[i]));
			assert_int_equal(warned, settled(row, ends[i]) != ends[i]);
		}
		assert_true(set_int(row, (long long)row->max + 1));
		assert_int_equal(value_of(row), settled(row, row->max));
		assert_true(set_int(row, (long long)row->min - 1));
		/* Any number but 0 means "on". */
		assert_int_equal(value_of(row),
				 row->type == TYPE_BOOL ? 1 : settled(row, row->min));
		assert_true(set_row(row, "999999999999999999999999"));
		assert_int_equal(value_of(row), settled(row, row->max));
	}
	printf("    %u numbers at, below and above both ends\n", n);
}

static void every_mode_takes_its_values_only(void **state)
{
	const struct param_row *row;
	unsigned n = 0;

	(void)state;
	for (row = param_rows; row < param_rows + param_rows_count; row++) {
		if (row->type != TYPE_INT || !(row->form & MODE))
			continue;
		for (int v = row->min - 1; v <= row->max + 1; v++) {
			bool known = param_word_of(row, v) != NULL;

			assert_int_equal(set_int(row, v), !known);
			assert_int_equal(value_of(row), known ? v : row->def);
			n++;
		}
	}
	printf("    %u values\n", n);
}

static void what_is_no_number_is_said_and_not_used(void **state)
{
	static const char *const garbage[] = {"",    "x",   "12x",	"0x10", "1.5",
					      "--1", "1 2", "\xff\xfe", "%s%n", "1e3"};
	const struct param_row *row;
	unsigned i;

	(void)state;
	for (row = param_rows; row < param_rows + param_rows_count; row++) {
		if (row->type != TYPE_INT && row->type != TYPE_BOOL)
			continue;
		for (i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
			assert_true(set_row(row, garbage[i]));
			assert_int_equal(value_of(row), row->def);
			assert_true(captured_has(" a number"));
		}
	}
	load("VMA_RX_POLL=12x");
	assert_true(captured_has(" VMA WARNING: VMA_RX_POLL=\"12x\" is neither a number nor "
				 "\"adaptive\", which is used\n"));
	/* A value that the banner shows as a word can be given as one. */
	load("VMA_RX_POLL=5", "VMA_SELECT_POLL=Adaptive");
	assert_int_equal(params.rx_poll, 5);
	assert_int_equal(params.select_poll, POLL_ADAPTIVE);
	load("VMA_RX_POLL=adaptive", "VMA_SPEC=latency");
	assert_int_equal(params.rx_poll, POLL_ADAPTIVE);
	assert_int_equal(params.select_poll, -1);
	load("VMA_STATS_FD_NUM=1025");
	assert_true(captured_has(" VMA WARNING: VMA_STATS_FD_NUM=1025 is outside its range (0 to "
				 "1024); 1024 is used\n"));
	load("VMA_THREAD_MODE=4");
	assert_true(captured_has(
		" VMA WARNING: VMA_THREAD_MODE=4 is not one of its values; 1 is used\n"));
	load("VMA_TX_BUFS= 5\t");
	assert_int_equal(params.tx_bufs, 5);
	assert_int_equal(captured_lines(), 0);
}

static void words(void **state)
{
	static const struct {
		const char *text;
		int level;
	} levels[] = {
		{"none", LOG_NONE},
		{"panic", LOG_PANIC},
		{"error", LOG_ERROR},
		{"warn", LOG_WARN},
		{"Warning", LOG_WARN},
		{"INFO", LOG_INFO},
		{"information", LOG_INFO},
		{"details", LOG_DETAILS},
		{"debug", LOG_DEBUG},
		{"fine", LOG_FINE},
		{"func", LOG_FINE},
		{"finer", LOG_FINER},
		{"func+", LOG_FINER},
		{"funcall", LOG_FINER},
		{"func_all", LOG_FINER},
		{"func-all", LOG_FINER},
		{"all", LOG_ALL},
		{"0", LOG_PANIC},
		{"1", LOG_ERROR},
		{"2", LOG_WARN},
		{"3", LOG_INFO},
		{"4", LOG_DEBUG},
		{"5", LOG_FINE},
		{"6", LOG_FINER},
		{"7", LOG_ALL},
	};
	static const char *const rings[] = {"auto", "mlx5", "xdp", "none"};
	char env[64];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		snprintf(env, sizeof(env), "VMA_TRACELEVEL=%s", levels[i].text);
		load(env);
		assert_int_equal(params.tracelevel, levels[i].level);
		assert_int_equal(log_level_now, levels[i].level);
		assert_int_equal(params.log_details, levels[i].level >= LOG_DEBUG ? 2 : 0);
		assert_int_equal(captured_lines(), 0);
	}
	for (i = 0; i < 4; i++) {
		snprintf(env, sizeof(env), "VMA_RING_TYPE=%s", rings[i]);
		load(env);
		assert_int_equal(params.ring_type, i);
	}
	assert_int_equal(RING_TYPE_NONE, 3);
	load("VMA_RING_TYPE=dpdk", "VMA_TRACELEVEL=loud");
	assert_int_equal(params.ring_type, RING_TYPE_AUTO);
	assert_true(captured_has("VMA_RING_TYPE=\"dpdk\" is not one of its values; auto is used"));
	assert_true(captured_has("VMA_TRACELEVEL=\"loud\" is not one of its values; INFO is used"));
}

static void unknown_names_get_the_nearest(void **state)
{
	static const struct {
		const char *name, *nearest;
	} t[] = {
		{"VMA_RX_POL", "VMA_RX_POLL"},
		{"VMA_RX_POLLL", "VMA_RX_POLL"},
		{"VMA_TRACE_LEVEL", "VMA_TRACELEVEL"},
		{"VMA_THREADMODE", "VMA_THREAD_MODE"},
		{"VMA_NEIGH_UC_ARP_QUOTA", "VMA_NEIGH_UC_ARP_QUATA"},
		{"VMA_INTERNAL_THREAD_CPUSSET", "VMA_INTERNAL_THREAD_CPUSET"},
		{"VMA_RINGTYPE", "VMA_RING_TYPE"},
		{"VMA_", "VMA_BF"},
	};
	char env[200], says[200];
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		snprintf(env, sizeof(env), "%s=1", t[i].name);
		snprintf(says, sizeof(says),
			 " VMA WARNING: %s is not a parameter of this library; the nearest is %s\n",
			 t[i].name, t[i].nearest);
		load(env);
		assert_true(captured_has(says));
		assert_int_equal(captured_lines(), 1);
	}
	/* Not ours, and a name alone (putenv allows it). */
	load("VMAX=1", "XVMA_RX_POL=1", "vma_rx_poll=2");
	assert_int_equal(captured_lines(), 0);
	load("VMA_RX_POLL");
	assert_int_equal(params.rx_poll, POLL_ADAPTIVE);
	memset(env, 'Z', sizeof(env) - 1);
	memcpy(env, "VMA_", 4);
	env[sizeof(env) - 1] = '\0';
	load(env);
	assert_int_equal(captured_lines(), 1);
}

static void obsolete_names_still_work(void **state)
{
	(void)state;
	load("VMA_RX_POLL_OS_RATIO=7");
	assert_int_equal(params.rx_udp_poll_os_ratio, 7);
	assert_true(captured_has("VMA_RX_POLL_OS_RATIO is obsolete: use VMA_RX_UDP_POLL_OS_RATIO"));
	load("VMA_RX_SKIP_OS=8");
	assert_int_equal(params.rx_udp_poll_os_ratio, 8);
	load("VMA_RX_SKIP_OS=8", "VMA_RX_UDP_POLL_OS_RATIO=9");
	assert_int_equal(params.rx_udp_poll_os_ratio, 9);
	load("VMA_MAX_INLINE=64");
	assert_int_equal(params.tx_max_inline, 64);
	load("VMA_CQ_DRAIN_WCE_MAX=511");
	assert_int_equal(params.progress_engine_wce_max, 511);
	load("VMA_HUGETBL=1");
	assert_int_equal(captured_lines(), 1);
	assert_true(captured_has("VMA_HUGETBL is obsolete: use VMA_MEM_ALLOC_TYPE=2"));
	assert_int_equal(params.mem_alloc_type, 2);
	load("VMA_HUGETLB=0");
	assert_int_equal(params.mem_alloc_type, 0);
	load("VMA_HUGETLB=1", "VMA_MEM_ALLOC_TYPE=1");
	assert_int_equal(params.mem_alloc_type, 1);
}

/* What nothing reads has an excuse: its help says in its own words what is so here. */
static void nothing_waits_to_be_read(void **state)
{
	unsigned excused = 0;

	(void)state;
	for (const struct param_row *r = param_rows; r < param_rows + param_rows_count; r++) {
		if (r->effect & NO_OBJECT && !strcasestr(r->help, "here"))
			fail_msg("%s: its help does not say what is so here", r->variable);
		excused += !!(r->effect & NO_OBJECT);
	}
	printf("    %u have nothing to set here\n", excused);
}

static void an_old_name_without_a_successor_says_what_is_done_now(void **state)
{
	static const char *const names[] = {"VMA_WINDOW_SCALING=3",
					    "VMA_TX_BACKLOG_MAX=100",
					    "VMA_RX_SW_CSUM=1",
					    "VMA_SELECT_POLL_YIELD=1",
					    "VMA_SELECT_CQ_IRQ=0",
					    "VMA_INTERNAL_THREAD_TCP_TIMER_HANDLING=1",
					    "VMA_IPOIB=1",
					    "VMA_IGMP=1",
					    "VMA_SUPPRESS_IGMP_WARNING=1",
					    "VMA_WAIT_AFTER_REREG_MSEC=500",
					    "VMA_QP_LOGIC=1"};

	(void)state;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		load(names[i]);
		assert_int_equal(captured_lines(), 1);
		assert_true(captured_has(" is obsolete: "));
		assert_false(captured_has("nearest"));
	}
}

static void parameters_demand_of_one_another(void **state)
{
	(void)state;
	load("VMA_RX_POLL=0");
	assert_int_equal(params.rx_poll, 1);
	assert_int_equal(captured_lines(), 0);
	load("VMA_RX_POLL_INIT=0");
	assert_int_equal(params.rx_poll_init, 0);
	load("VMA_SELECT_POLL_OS_FORCE=1");
	assert_int_equal(params.select_poll_os_ratio, 1);
	assert_int_equal(params.select_skip_os, 1);
	load("VMA_SELECT_POLL_OS_FORCE=1", "VMA_SELECT_SKIP_OS=9");
	assert_int_equal(params.select_poll_os_ratio, 1);
	assert_int_equal(params.select_skip_os, 9);
	load("VMA_RX_PREFETCH_BYTES_BEFORE_POLL=31");
	assert_int_equal(params.rx_prefetch_bytes_before_poll, 32);
	assert_int_equal(captured_lines(), 1);
	load("VMA_TX_WRE=100");
	assert_true(captured_has("VMA_TX_WRE=100 is below twice VMA_TX_WRE_BATCHING; 128 is used"));
	load("VMA_TX_WRE=100000", "VMA_TX_MAX_INLINE=0");
	assert_int_equal(params.tx_wre, 32768);
	load("VMA_TX_WRE=100000", "VMA_TX_MAX_INLINE=884");
	assert_int_equal(params.tx_wre, 2184);
	load("VMA_RX_WRE=600"); /* 560 was nobody's wish: lowered in silence */
	assert_int_equal(params.cq_aim_max_count, 300);
	assert_int_equal(captured_lines(), 0);
	load("VMA_RX_WRE=600", "VMA_CQ_AIM_MAX_COUNT=301");
	assert_true(
		captured_has("VMA_CQ_AIM_MAX_COUNT=301 is above half of VMA_RX_WRE; 300 is used"));
	load("VMA_SELECT_POLL=-1", "VMA_CQ_MODERATION_ENABLE=1");
	assert_int_equal(params.cq_moderation_enable, 0);
	assert_int_equal(captured_lines(), 1);
	load("VMA_TIMER_RESOLUTION_MSEC=200");
	assert_int_equal(params.tcp_timer_resolution_msec, 200);
	load("VMA_SOCKETXTREME=1");
	assert_int_equal(params.rx_wre, 1024);
	assert_int_equal(params.gro_streams_max, 0);
	assert_int_equal(params.progress_engine_interval, 0);
	load("VMA_SOCKETXTREME=1", "VMA_RX_WRE=4096", "VMA_PROGRESS_ENGINE_INTERVAL=5");
	assert_int_equal(params.rx_wre, 4096);
	assert_int_equal(params.progress_engine_interval, 0);
	assert_int_equal(captured_lines(), 1);
}

static void texts(void **state)
{
	static char longer[PATH_MAX + 100] = "VMA_CONFIG_FILE=";
	char expect[100], env[] = "VMA_APPLICATION_ID=mine";

	(void)state;
	load("VMA_STATS_FILE=/tmp/a%d-%d%s%n", "VMA_CONFIG_FILE=/x/%d");
	snprintf(expect, sizeof(expect), "/tmp/a%d-%%d%%s%%n", (int)getpid());
	assert_string_equal(params.stats_file, expect);
	assert_string_equal(params.config_file, "/x/%d"); /* no file name with a pid */
	load("VMA_STATS_SHMEM_DIR=");
	assert_string_equal(params.stats_shmem_dir, "");
	/* The program may overwrite its environment. */
	load(env);
	memset(env, 'x', sizeof(env) - 1);
	assert_string_equal(params.application_id, "mine");
	memset(longer + 16, 'a', PATH_MAX);
	load(longer);
	assert_string_equal(params.config_file, "/etc/libvma.conf");
	assert_true(captured_has("VMA_CONFIG_FILE is longer than"));
	/* The first of two wins, as with getenv(). */
	load("VMA_MTU=1", "VMA_MTU=2");
	assert_int_equal(params.mtu, 1);
}

static void processor_sets(void **state)
{
	static const struct {
		const char *text;
		unsigned long mask; /* 0: refused */
	} t[] = {
		{"0", 1},      {"0x1", 1},   {"0x3", 3},	{"3", 8},
		{"0,2-3", 13}, {"0X1f", 31}, {"63", 1ul << 63}, {"0-63", ~0ul},
		{"0x", 0},     {"0x0", 0},   {"", 0},		{"-1", 0},
		{"1-", 0},     {"2-1", 0},   {"1,", 0},		{",1", 0},
		{"1 ", 0},     {"0xg", 0},   {"99999", 0},	{"0-99999999999999999999", 0},
	};
	static char mask[600] = "0x";
	cpu_set_t set;
	unsigned i, cpu;

	(void)state;
	for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		assert_int_equal(params_cpus(t[i].text, &set), t[i].mask ? 0 : -EINVAL);
		for (cpu = 0; t[i].mask && cpu < 64; cpu++)
			assert_int_equal(!!CPU_ISSET(cpu, &set), t[i].mask >> cpu & 1);
	}
	memset(mask + 2, 'f', 256);
	assert_int_equal(params_cpus(mask, &set), 0);
	assert_int_equal(CPU_COUNT(&set), 1024);
	memset(mask + 2, 'f', 257);
	assert_int_equal(params_cpus(mask, &set), -EINVAL);
	load("VMA_INTERNAL_THREAD_AFFINITY=two");
	assert_true(captured_has("VMA_INTERNAL_THREAD_AFFINITY=\"two\" is neither a mask"));
	assert_string_equal(params.internal_thread_affinity, "-1");
}

static time_t wall_clock;

/* Instead of libc's, for banner.c. */
time_t time(time_t *to)
{
	if (to)
		*to = wall_clock;
	return wall_clock;
}

/* A child of fork() does not ask libc for the time: UTC, and of every day the right one. */
static void the_banner_of_a_copy_says_utc(void **state)
{
	static const time_t days[] = {0, 951782400, 951868800, 1709164800, 1735603200, 4107542400};
	char line[96], when[64];
	struct tm tm;

	(void)state;
	load("VMA_RX_POLL=-1");
	process_mark_forked();
	for (unsigned i = 0; i < sizeof(days) / sizeof(*days); i++) {
		wall_clock = days[i] + 3661 * (time_t)i;
		capture_clear();
		params_banner();
		gmtime_r(&wall_clock, &tm);
		strftime(when, sizeof(when), "%a %b %e %H:%M:%S %Y", &tm);
		snprintf(line, sizeof(line), "\n VMA INFO: Current Time: %s UTC\n", when);
		print_message("    %s\n", when);
		assert_true(captured_has(line));
	}
	wall_clock = 0;
}

static void the_banner_at_info(void **state)
{
	(void)state;
	load("VMA_RX_POLL=-1", "VMA_TCP_NODELAY=1", "VMA_RING_ALLOCATION_LOGIC_TX=20",
	     "VMA_RX_CQ_DRAIN_RATE_NSEC=100", "VMA_RING_DEV_MEM_TX=5");
	capture_clear();
	params_banner();
	assert_true(captured_has(
		" VMA INFO: "
		"---------------------------------------------------------------------------\n"
		" VMA INFO: VMA_VERSION: 10.0.0-0 Release built on "));
	assert_true(captured_has("\n VMA INFO: Cmd Line: "));
	assert_true(captured_has("test_params\n"));
	assert_true(captured_has("\n VMA INFO: Current Time: "));
	assert_true(captured_has("\n VMA INFO: Pid: "));
	assert_true(captured_has("\n VMA INFO: Architecture: "));
	assert_true(captured_has("\n VMA INFO: Node: "));
	assert_true(captured_has("\n VMA INFO: Log Level                      INFO                 "
				 "      [VMA_TRACELEVEL]\n"));
	assert_true(captured_has("\n VMA INFO: Rx Poll Loops                  -1                   "
				 "      [VMA_RX_POLL]\n"));
	assert_true(captured_has(
		"\n VMA INFO: Ring allocation logic TX       20 (Ring per thread)       "
		"[VMA_RING_ALLOCATION_LOGIC_TX]\n"));
	assert_true(captured_has(
		"\n VMA INFO: Rx CQ Drain Rate (nsec)        100                        "
		"[VMA_RX_CQ_DRAIN_RATE_NSEC]\n"));
	assert_true(captured_has("[VMA_RING_DEV_MEM_TX] (no effect on ring xdp)\n"));
	assert_null(strstr(captured(), "Tx Mem Bufs"));
	assert_null(strstr(captured(), "DETAILS"));
	assert_string_equal(VMA_LIBRARY_VERSION, "10.0.0-0");
}

static void the_banner_at_details_and_at_warn(void **state)
{
	unsigned i;

	(void)state;
	load("VMA_TRACELEVEL=details", "VMA_SPEC=latency");
	capture_clear();
	params_banner();
	for (i = 0; i < param_rows_count; i++)
		assert_true(captured_has(param_rows[i].variable));
	assert_true(captured_has("\n VMA DETAILS: Tx Mem Segs TCP                1000000           "
				 "         [VMA_TX_SEGS_TCP]\n"));
	assert_true(captured_has("\n VMA DETAILS: Rx Poll Yield                  Disabled          "
				 "         [VMA_RX_POLL_YIELD]\n"));
	assert_true(captured_has(
		"\n VMA DETAILS: Rx CQ Drain Rate               Disabled                   "
		"[VMA_RX_CQ_DRAIN_RATE_NSEC]\n"));
	assert_true(captured_has("\n VMA DETAILS: MTU                            0 (follow actual "
				 "MTU)      [VMA_MTU]\n"));
	assert_true(captured_has("\n VMA INFO: Thread mode                    Single               "
				 "      [VMA_THREAD_MODE]\n"));
	assert_true(captured_has("\n VMA INFO: VMA Spec                       Latency              "
				 "      [VMA_SPEC]\n"));
	load("VMA_TRACELEVEL=warn");
	capture_clear();
	params_banner();
	assert_int_equal(captured_lines(), 0);
}

static void loading_twice_and_in_a_child(void **state)
{
	char one[] = "VMA_MTU=1", two[] = "VMA_MTU=2", bad[] = "VMA_MTUU=1",
	     stats[] = "VMA_STATS_FILE=/tmp/s%d", log[100];
	char *first[] = {one, bad, stats, log, NULL}, *second[] = {two, bad, NULL},
	     *none[] = {NULL};
	char expect[64];
	int status;
	pid_t pid;

	(void)state;
	snprintf(log, sizeof(log), "VMA_LOG_FILE=%s", capture_path);
	params_reload(first);
	params_load(second); /* has been loaded in this process */
	assert_int_equal(params.mtu, 1);
	capture_clear();
	memset(one, 'x', sizeof(one) - 1); /* the program uses its environment's memory otherwise */
	for (unsigned i = 0; i < 3; i++) {
		pid = fork();
		if (!pid) {
			params_load(i == 0 ? second : i == 1 ? none : NULL);
			snprintf(expect, sizeof(expect), "/tmp/s%d", (int)getpid());
			_exit(params.mtu == 1 && !strcmp(params.stats_file, expect) ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(captured_lines(), 0); /* the parent has warned */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_default),
		cmocka_unit_test(names_fields_and_help_are_in_order),
		cmocka_unit_test(every_range_end),
		cmocka_unit_test(every_mode_takes_its_values_only),
		cmocka_unit_test(what_is_no_number_is_said_and_not_used),
		cmocka_unit_test(words),
		cmocka_unit_test(unknown_names_get_the_nearest),
		cmocka_unit_test(obsolete_names_still_work),
		cmocka_unit_test(nothing_waits_to_be_read),
		cmocka_unit_test(an_old_name_without_a_successor_says_what_is_done_now),
		cmocka_unit_test(parameters_demand_of_one_another),
		cmocka_unit_test(texts),
		cmocka_unit_test(processor_sets),
		cmocka_unit_test(the_banner_of_a_copy_says_utc),
		cmocka_unit_test(the_banner_at_info),
		cmocka_unit_test(the_banner_at_details_and_at_warn),
		cmocka_unit_test(loading_twice_and_in_a_child),
	};

	return cmocka_run_group_tests(tests, capture_setup, capture_teardown);
}
