/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The profiles of VMA_SPEC. */
#include "config/params_table.h"

#include "runtime/runtime.h"

const struct param_profile param_profiles[] = {
#define PROFILE(spec, field, value) {spec, #field, offsetof(struct params, field), value, NULL},
#define PROFILE_STR(spec, field, text) {spec, #field, offsetof(struct params, field), 0, text},
#include "config/parameters.def"
};
const unsigned param_profiles_count = sizeof(param_profiles) / sizeof(param_profiles[0]);

void spec_apply(int spec, struct params *p)
{
	const struct param_profile *s;

	for (s = param_profiles; s < param_profiles + param_profiles_count; s++) {
		if (s->spec != spec)
			continue;
		if (s->text)
			*(const char **)((char *)p + s->offset) = s->text;
		else
			*(int *)((char *)p + s->offset) = s->value;
	}
}
