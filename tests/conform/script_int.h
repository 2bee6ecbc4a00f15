/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a script runs on: the engine or the kernel. */
#ifndef CONFORM_SCRIPT_INT_H
#define CONFORM_SCRIPT_INT_H

#include <setjmp.h>

#include "script.h"

#define OUR_PORT 4000u
#define PEER_PORT 5000u
#define MAX_OUT 4096u
#define FAST_OPEN_KEY "sixteen bytes, .." /* TCP_FASTOPEN_KEY: the first sixteen */
/* A line of the record that noted() makes, and that is read again. */
#define NOTED "= %s, %s: %llu within %llu"
#define NOTED_READ "= %*[^,], %63[^:]: %llu within %llu"
#define TRANSCRIPT (1u << 16)

enum verdict { CASE_PASSED, CASE_FAILED, CASE_SKIPPED };

struct backend {
	const char *name;
	bool virtual_time;
	void (*begin)(void);
	void (*end)(void);
	uint64_t (*now)(void); /* us */
	void (*wait)(uint64_t us);
	/* A TCP segment to us: header and payload, checksum not yet made. */
	void (*inject)(uint8_t *tcp, unsigned n, uint8_t tos);
	void (*icmp)(enum tcp_icmp kind, uint32_t seq, uint32_t mtu);
	void (*listen)(void);
	int (*connect)(void);
	int (*connect_with)(const uint8_t *p, uint32_t n);
	int (*accept)(void);
	int (*send)(const uint8_t *p, uint32_t n, int flags);
	int (*recv)(uint8_t *p, uint32_t n, int flags);
	int (*shutdown)(int how);
	void (*close)(bool abort);
	int (*error)(void);
	uint32_t (*ready)(void);
	enum tcp_state (*state)(void);
	void (*info)(union tcp_info_all *ti);
	void (*set_opts)(void);
	uint32_t (*inq)(void);
};

extern const struct backend engine_backend, kernel_backend;

struct script {
	const struct backend *b;
	struct tcp_opts o;
	struct tcp_cfg cfg;
	struct peer peer;
	struct in6_addr ours, theirs;
	/* What has left, oldest first; numbers as on the wire. */
	struct seg sent[MAX_OUT];
	unsigned first, count;
	struct seg last; /* relative */
	uint64_t begun, event_at, passed; /* passed: so much time the script let pass */
	uint32_t iss; /* ours */
	bool iss_known, ts_agreed, scaled;
	int our_wscale;
	uint32_t our_tsval; /* highest seen */
	uint32_t sent_bytes; /* given to send() */
	uint32_t received_bytes;
	bool verbose;
	char *transcript;
	unsigned length;
	jmp_buf stop;
	enum verdict verdict;
	char why[600];
};

extern struct script script;

/* The backend's: a segment has left. tcp: header and payload. */
void script_left(const uint8_t *tcp, unsigned n, uint8_t tos, uint64_t when);
_Noreturn void script_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void script_skip(const char *why);
/* Runs one on a backend. transcript: TRANSCRIPT bytes for what left and what calls gave. */
enum verdict script_run(const struct conform_case *c, const struct backend *b, bool verbose,
			char *transcript);

#endif
