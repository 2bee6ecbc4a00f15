/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "config/params_table.h"

#include <limits.h>
#include <string.h>

#include "runtime/runtime.h"
#include "vma/log_names.h"

static const struct param_word words_none[] = {{0, NULL}};
static const struct param_word words_bool[] = {{0, "Disabled"}, {1, "Enabled"}, {0, NULL}};
static const struct param_word words_off[] = {{0, "Disabled"}, {0, NULL}};
static const struct param_word words_adaptive[] = {{POLL_ADAPTIVE, "adaptive"}, {0, NULL}};
static const struct param_word words_no_limit[] = {{0, "no limit"}, {0, NULL}};
static const struct param_word words_mtu[] = {{0, "follow actual MTU"}, {0, NULL}};
static const struct param_word words_mss[] = {{0, "follow VMA_MTU"}, {0, NULL}};
static const struct param_word words_cc[] = {{0, "NewReno"}, {1, "Cubic"}, {2, "None"},
					     {3, "BBR"},     {4, "OS"},	   {0, NULL}};
static const struct param_word words_mem[] = {
	{0, "Regular pages"}, {1, "Contig Pages"}, {2, "Huge Pages"}, {0, NULL}};

#define LEVEL_WORD(level, name) {level, name},
static const struct param_word words_level[] = {LOG_LEVEL_NAMES(LEVEL_WORD){0, NULL}};
#undef LEVEL_WORD

static const struct param_word words_spec[] = {
	{SPEC_NONE, "none"},
	{SPEC_NONE, "0"},
	{SPEC_ULTRA_LATENCY, "Ultra Latency"},
	{SPEC_ULTRA_LATENCY, "ultra-latency"},
	{SPEC_ULTRA_LATENCY, "10"},
	{SPEC_LATENCY, "Latency"},
	{SPEC_LATENCY, "15"},
	{SPEC_29WEST, "29West LBM Logic"},
	{SPEC_29WEST, "29west"},
	{SPEC_29WEST, "29"},
	{SPEC_WOMBAT_FH, "Wombat FH LBM Logic"},
	{SPEC_WOMBAT_FH, "wombat_fh"},
	{SPEC_WOMBAT_FH, "554"},
	{SPEC_MCD, "Memcached Logic"},
	{SPEC_MCD, "mcd"},
	{SPEC_MCD, "623"},
	{SPEC_MCD_IRQ, "Memcached Interrupt Mode"},
	{SPEC_MCD_IRQ, "mcd-irq"},
	{SPEC_MCD_IRQ, "624"},
	{SPEC_RTI, "RTI Logic"},
	{SPEC_RTI, "rti"},
	{SPEC_RTI, "784"},
	{SPEC_7750, "7750 Low Latency Profile"},
	{SPEC_7750, "7750"},
	{SPEC_MULTI_RING_LATENCY, "Multi Ring Latency Profile"},
	{SPEC_MULTI_RING_LATENCY, "multi_ring_latency"},
	{0, NULL},
};

static const struct param_word words_ring_type[] = {
	{RING_TYPE_AUTO, "auto"},
	{RING_TYPE_MLX5, "mlx5"},
	{RING_TYPE_XDP, "xdp"},
	{RING_TYPE_NONE, "none"},
	{0, NULL},
};

static const struct param_word words_xdp_mode[] = {
	{PARAM_XDP_AUTO, "auto"},
	{PARAM_XDP_GENERIC, "generic"},
	{PARAM_XDP_NATIVE, "native"},
	{PARAM_XDP_ZEROCOPY, "zerocopy"},
	{0, NULL},
};

static const struct param_word words_ring_logic[] = {
	{0, "Ring per interface"},
	{1, "Ring per IP"},
	{10, "Ring per socket"},
	{20, "Ring per thread"},
	{30, "Ring per core"},
	{31, "Ring per core - attach threads"},
	{0, NULL},
};

static const struct param_word words_ctl_thread[] = {
	{0, "Disabled"},
	{1, "With wakeup"},
	{2, "Delegate by timer"},
	{0, NULL},
};

static const struct param_word words_exception[] = {
	{-2, "exit on failed startup"},
	{-1, "just log debug message"},
	{0, "log debug and un-offload"},
	{1, "log error and un-offload"},
	{2, "log error and return error"},
	{3, "log error and abort"},
	{0, NULL},
};

static const struct param_word words_thread[] = {
	{0, "Single"},
	{1, "Multi spin lock"},
	{2, "Multi mutex lock"},
	{3, "Multi more than cores"},
	{0, NULL},
};

static const struct param_word words_batching[] = {
	{0, "No batching buffers"},
	{1, "Batch and reclaim buffers"},
	{2, "Batch and no reclaim"},
	{0, NULL},
};

#define AT(field) offsetof(struct params, field)
const struct param_row param_rows[] = {
#define PARAM_INT(field, var, label, def, min, max, show, words, effect, help)                     \
	{var, label, TYPE_INT, show, effect, words, AT(field), def, min, max, NULL, help},
#define PARAM_BOOL(field, var, label, def, effect, help)                                           \
	{var, label, TYPE_BOOL, SHOW_WORD, effect, words_bool, AT(field), def, 0, 1, NULL, help},
#define PARAM_ENUM(field, var, label, def, words, effect, help)                                    \
	{var, label, TYPE_ENUM, SHOW_WORD | MODE, effect, words, AT(field), def, 0, 0, NULL, help},
#define PARAM_STR(field, var, label, def, kind, effect, help)                                      \
	{var, label, TYPE_STR, kind, effect, NULL, AT(field), 0, 0, 0, def, help},
#include "config/parameters.def"
};
const unsigned param_rows_count = sizeof(param_rows) / sizeof(param_rows[0]);

#define TAKES_rx_udp_poll_os_ratio "VMA_RX_UDP_POLL_OS_RATIO"
#define TAKES_tx_max_inline "VMA_TX_MAX_INLINE"
#define TAKES_progress_engine_wce_max "VMA_PROGRESS_ENGINE_WCE_MAX"
#define TAKES_mem_alloc_type "VMA_MEM_ALLOC_TYPE"
#define TAKES_NONE NULL
const struct param_obsolete param_obsoletes[] = {
#define OBSOLETE(var, field, instead) {var, TAKES_##field, NULL, NULL, instead},
#define OBSOLETE_SWITCH(var, field, off, on, instead) {var, TAKES_##field, off, on, instead},
#include "config/parameters.def"
};
const unsigned param_obsoletes_count = sizeof(param_obsoletes) / sizeof(param_obsoletes[0]);

const char *param_word_of(const struct param_row *row, int value)
{
	const struct param_word *w;

	for (w = row->words; w->name; w++)
		if (w->value == value)
			return w->name;
	return NULL;
}

void param_format(const struct param_row *row, const struct params *p, char *out, size_t size)
{
	const char *word;
	int value;

	if (row->type == TYPE_STR) {
		snprintf(out, size, "%s", *param_str((struct params *)p, row));
		return;
	}
	value = *param_int((struct params *)p, row);
	word = param_word_of(row, value);
	switch (row->form & ~MODE) {
	case SHOW_WORD:
		if (word)
			snprintf(out, size, "%s", word);
		else
			snprintf(out, size, "%d", value);
		return;
	case SHOW_BOTH:
		if (word) {
			snprintf(out, size, "%d (%s)", value, word);
			return;
		}
		/* fall through */
	default:
		snprintf(out, size, "%d", value);
	}
}

const char *param_effect_text(const struct param_row *row)
{
	static const char *const text[] = {
		[READ] = "",
		[NOT_ON_XDP] = "no effect on ring xdp",
		[NO_OBJECT] = "nothing to set here",
	};

	return text[row->effect];
}
