/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* ICMP errors from the message to what the user is told: Linux's errors (icmp_err_convert). */
#include <netinet/icmp6.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>

#include "proto/proto.h"
#include "tcp/icmp.h"
#include "tcp_peer.h"

/* The quoted SYN: ports and sequence number. */
static void quote_tcp(uint8_t *p, const struct tcp_tuple *u)
{
	uint16_t lport = htons(u->lport), rport = htons(u->rport);
	uint32_t seq = htonl(t.iss);

	memcpy(p, &lport, 2);
	memcpy(p + 2, &rport, 2);
	memcpy(p + 4, &seq, 4);
}

static bool parsed_v4(uint8_t type, uint8_t code, struct icmp_tcp *e)
{
	uint8_t p[20 + 8 + 20 + 8] = {0x45, [9] = IPPROTO_ICMP}, *icmp = p + 20, *quote = icmp + 8;
	struct tcp_tuple u = tuple_of(RPORT);
	uint16_t sum;

	icmp[0] = type;
	icmp[1] = code;
	quote[0] = 0x45;
	quote[9] = IPPROTO_TCP;
	memcpy(quote + 12, &u.local.s6_addr[12], 4);
	memcpy(quote + 16, &u.remote.s6_addr[12], 4);
	quote_tcp(quote + 20, &u);
	sum = (uint16_t)~csum_fold(csum_add(0, icmp, sizeof(p) - 20));
	memcpy(icmp + 2, &sum, 2);
	return icmp_tcp_parse(p, sizeof(p), AF_INET, e);
}

static bool parsed_v6(uint8_t type, uint8_t code, struct icmp_tcp *e)
{
	uint8_t p[8 + sizeof(struct ip6_hdr) + 8] = {type, code}, *quote = p + 8;
	struct tcp_tuple u = tuple_of(RPORT);

	quote[0] = 0x60;
	quote[6] = IPPROTO_TCP;
	memcpy(quote + 8, &u.local, 16);
	memcpy(quote + 24, &u.remote, 16);
	quote_tcp(quote + sizeof(struct ip6_hdr), &u);
	return icmp_tcp_parse(p, sizeof(p), AF_INET6, e);
}

/* What connect() says when that is the answer to its SYN; 0: it goes on waiting. */
static int connect_error(int family, uint8_t type, uint8_t code)
{
	struct tcp_tuple u = tuple_of(RPORT);
	struct icmp_tcp e;
	bool ours;
	int err;

	setup();
	start();
	assert_int_equal(tcp_connect(t.ts, &u, &t.o, &t.user, t.now, &t.c), 0);
	tcp_flush(t.ts, t.now);
	ours = family == AF_INET ? parsed_v4(type, code, &e) : parsed_v6(type, code, &e);
	if (ours) {
		assert_int_equal(e.seq, t.iss);
		/* The connection is one of IPv4 either way: the kind is what counts. */
		tcp_icmp(t.ts, &u, e.seq, e.kind, e.mtu, t.now);
	}
	err = tcp_error(t.c);
	assert_int_equal(tcp_conn_state(t.c), err ? TCPS_CLOSED : TCPS_SYN_SENT);
	end();
	return err;
}

static void test_errors_of_icmp(void **state)
{
	static const int unreach[] = {ENETUNREACH,
				      EHOSTUNREACH,
				      ENOPROTOOPT,
				      ECONNREFUSED,
				      0,
				      EOPNOTSUPP,
				      ENETUNREACH,
				      EHOSTDOWN,
				      ENONET,
				      ENETUNREACH,
				      EHOSTUNREACH,
				      ENETUNREACH,
				      EHOSTUNREACH,
				      EHOSTUNREACH,
				      EHOSTUNREACH,
				      EHOSTUNREACH,
				      0};

	(void)state;
	for (unsigned code = 0; code < sizeof(unreach) / sizeof(unreach[0]); code++)
		assert_int_equal(connect_error(AF_INET, ICMP_DEST_UNREACH, (uint8_t)code),
				 unreach[code]);
	assert_int_equal(connect_error(AF_INET, ICMP_TIME_EXCEEDED, 0), EHOSTUNREACH);
	assert_int_equal(connect_error(AF_INET, ICMP_PARAMETERPROB, 0), EPROTO);
	assert_int_equal(connect_error(AF_INET, ICMP_SOURCE_QUENCH, 0), 0);
}

static void test_errors_of_icmpv6(void **state)
{
	static const int unreach[] = {ENETUNREACH,  EACCES, EHOSTUNREACH, EHOSTUNREACH,
				      ECONNREFUSED, EACCES, EACCES,	  EPROTO};

	(void)state;
	for (unsigned code = 0; code < sizeof(unreach) / sizeof(unreach[0]); code++)
		assert_int_equal(connect_error(AF_INET6, ICMP6_DST_UNREACH, (uint8_t)code),
				 unreach[code]);
	assert_int_equal(connect_error(AF_INET6, ICMP6_TIME_EXCEEDED, 0), EHOSTUNREACH);
	assert_int_equal(connect_error(AF_INET6, ICMP6_PARAM_PROB, 0), EPROTO);
	assert_int_equal(connect_error(AF_INET6, ICMP6_PACKET_TOO_BIG, 0), 0);
}

/* RFC 6069: only a route that is missing says that what was lost was no congestion. */
static void test_back_off_of_what_icmp_explains(void **state)
{
	static const struct {
		uint8_t type, code;
		bool explains;
	} each[] = {
		{ICMP_DEST_UNREACH, ICMP_NET_UNREACH, true},
		{ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, true},
		{ICMP_DEST_UNREACH, ICMP_PKT_FILTERED, false},
		{ICMP_DEST_UNREACH, ICMP_NET_ANO, false},
		{ICMP_TIME_EXCEEDED, 0, false},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct iovec iov = {(char[1]){'x'}, 1};
		struct icmp_tcp e;
		unsigned backoff;

		setup();
		start();
		accepted_plain();
		assert_int_equal(tcp_send(t.c, &iov, 1, 0, t.now), 1);
		tcp_flush(t.ts, t.now);
		pass(30 * SEC);
		backoff = t.c->backoff;
		assert_true(backoff > 1);
		assert_true(parsed_v4(each[i].type, each[i].code, &e));
		tcp_icmp(t.ts, &e.tuple, t.c->snd_una, e.kind, e.mtu, t.now);
		assert_int_equal(t.c->backoff, backoff - each[i].explains);
		end();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors_of_icmp),
		cmocka_unit_test(test_errors_of_icmpv6),
		cmocka_unit_test(test_back_off_of_what_icmp_explains),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
