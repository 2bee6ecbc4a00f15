/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libvma.conf: any bytes are parsed, then asked with addresses made of the same bytes, and once
 * more a line at a time as rules on top. Two parses of one text must count the same bad lines and
 * answer alike.
 */
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/log.h"
#include "config/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void address(struct sockaddr_storage *ss, const uint8_t *data, size_t size, size_t at)
{
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ss;
	struct sockaddr_in *in = (struct sockaddr_in *)ss;
	uint8_t raw[19] = {0};
	size_t i;

	for (i = 0; i < sizeof(raw) && at + i < size; i++)
		raw[i] = data[at + i];
	memset(ss, 0, sizeof(*ss));
	if (raw[18] & 1) {
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, raw, 16);
		memcpy(&in6->sin6_port, raw + 16, 2);
	} else {
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, raw, 4);
		memcpy(&in->sin_port, raw + 16, 2);
	}
}

/* All answers to a few questions, as bits. */
static unsigned answers(const uint8_t *data, size_t size)
{
	struct sockaddr_storage one, two;
	unsigned bits = 0, i;

	for (i = 0; i < 10; i++) {
		address(&one, data, size, i * 3);
		address(&two, data, size, i * 5 + 1);
		bits = bits << 1 | rules_match((enum rule_role)(i % 5), (struct sockaddr *)&one,
					       i & 1 ? (struct sockaddr *)&two : NULL);
	}
	return bits;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	char line[300];
	unsigned first;
	int bad;

	log_level_now = LOG_NONE;
	bad = rules_parse(text, size, "fuzz");
	first = answers(data, size);
	if (rules_parse(text, size, "fuzz") != bad || answers(data, size) != first)
		abort();
	if (size < sizeof(line)) {
		memcpy(line, data, size);
		line[size] = '\0';
		rules_add_top(line);
		answers(data, size);
	}
	rules_free();
	if (answers(data, size) != (1u << 10) - 1)
		abort(); /* without rules everything is offloaded */
	return 0;
}
