/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sendto() to where the datagram before it went: whose lock it runs under, and what it leaves
 * behind. On a ring that counts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "stack/stack.h"
#include "socket/udp/send.h"

static struct stack st;
static struct ring ring;
static struct ring_ops ops;
static struct udp_sock sock;
static struct udp_dst dsts[UDP_DST_WAYS], *dst;
static struct vma_stats_socket stats;
static struct sockaddr_in to;
static uint8_t place[2048];
static struct buf frame;
static unsigned shorts, posts;
static bool takes_fast_path, exact_room;
static int kicked; /* what the kick says */
static unsigned full; /* so often there is no buffer */

static void buf_back(struct buf_pool *pool, struct buf *b)
{
	(void)pool;
	(void)b;
}

static struct buf_pool pool = {.free = buf_back};

/* The lock of the ring's stack is this thread's. */
static void assert_owned(void)
{
	assert_int_equal(atomic_load(&st.lock.owner), syscall(SYS_gettid));
}

static bool send_short(struct ring *r, const void *hdr, const void *data, uint32_t len)
{
	(void)r;
	(void)hdr;
	(void)data;
	(void)len;
	assert_owned();
	shorts += takes_fast_path;
	return takes_fast_path;
}

static struct buf *tx_alloc(struct ring *r, uint32_t room)
{
	(void)r;
	assert_owned();
	if (full) {
		full--;
		return NULL;
	}
	frame = (struct buf){
		.data = place, .room = exact_room ? room : sizeof(place), .refs = 1, .pool = &pool};
	return &frame;
}

static int post(struct ring *r, struct buf *b)
{
	(void)r;
	(void)b;
	assert_owned();
	posts++;
	return 0;
}

static int kick(struct ring *r)
{
	(void)r;
	return kicked;
}

/* A socket that has sent to `to`, once. */
static int setup(void **state)
{
	struct udp_hdr_spec spec = {.family = AF_INET, .ttl = 64, .sport = 7, .dport = 9};

	(void)state;
	libc_load();
	lock_mode = 1;
	lock_class(&st.lock, "stack.lock");
	memset(&st, 0, sizeof(st));
	memset(&sock, 0, sizeof(sock));
	memset(&stats, 0, sizeof(stats));
	memset(dsts, 0, sizeof(dsts));
	shorts = posts = full = 0;
	kicked = 0;
	takes_fast_path = true;
	exact_room = false;
	ops = (struct ring_ops){
		.send_short = send_short, .tx_alloc = tx_alloc, .post = post, .kick = kick};
	ring = (struct ring){.ops = &ops, .caps = {.max_frame = 1514, .tx_csum = true}};
	st.ring = &ring;
	st.open = true;
	to = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(0x0a000001)}};
	dst = udp_dst_slot(dsts, (const struct sockaddr *)&to, sizeof(to));
	dst->st = &st;
	dst->gens = net_generations();
	dst->max_payload = 1472;
	dst->key_len = sizeof(to);
	memcpy(dst->key, &to, sizeof(to));
	udp_hdr_init(&dst->hdr, &spec);
	sock.stats = &stats;
	sock.dsts = dsts;
	sock.dst_last = dst;
	udp_dst_fast_path(dst, &sock);
	lock_self();
	return 0;
}

static ssize_t send_by(size_t len, int flags)
{
	static const uint8_t data[1472];

	return udp_sendto(&sock.v, data, len, vfd_call(-1, flags), (const struct sockaddr *)&to,
			  sizeof(to));
}

static ssize_t send_to(size_t len)
{
	return send_by(len, 0);
}

static void the_next_one_takes_the_fast_path(void **state)
{
	(void)state;
	stats.tx_tid = lock_self();
	assert_int_equal(send_to(64), 64);
	assert_int_equal(shorts, 1);
	assert_int_equal(posts, 0);
	assert_int_equal(atomic_load(&st.lock.owner), 0);
}

/*
 * The memory of a socket is used again with a zeroed block of statistics, and a call of its former
 * life may remember its destination after that: a thread that does not know its number yet must not
 * take a lock by 0, which is "free".
 */
static void a_thread_that_does_not_know_its_number_takes_the_lock_by_it(void **state)
{
	(void)state;
	lock_thread.tid = 0;
	assert_int_equal(send_to(64), 64);
	assert_int_equal(posts, 1);
	assert_int_equal(stats.tx_tid, syscall(SYS_gettid));
	assert_int_equal(atomic_load(&st.lock.owner), 0);
}

/* RFC 6864: they repeat as late as they can. */
static void each_datagram_takes_one_identification(void **state)
{
	(void)state;
	stats.tx_tid = lock_self();
	dst->hdr.ip_id = 100;
	assert_int_equal(send_to(64), 64);
	assert_int_equal(dst->hdr.ip_id, 101);
	takes_fast_path = false;
	assert_int_equal(send_to(64), 64);
	assert_int_equal(posts, 1);
	assert_int_equal(dst->hdr.ip_id, 102);
	/* A ring without send_short(). */
	ops.send_short = NULL;
	assert_int_equal(send_to(64), 64);
	assert_int_equal(posts, 2);
	assert_int_equal(dst->hdr.ip_id, 103);
}

static void a_place_with_just_the_room_is_enough(void **state)
{
	(void)state;
	stats.tx_tid = lock_self();
	takes_fast_path = false;
	exact_room = true;
	dst->key_len = 0; /* so the longer way would not find it */
	assert_int_equal(send_to(64), 64);
	assert_int_equal(posts, 1);
}

/*
 * The device is behind: the program waits, and its datagram stays behind those before it. (Here the
 * kernel's socket would say EBADF.)
 */
static void a_blocking_send_waits_for_room(void **state)
{
	(void)state;
	takes_fast_path = false;
	full = 1000;
	assert_int_equal(send_to(64), 64);
	assert_int_equal(full, 0);
	assert_int_equal(posts, 1);
	assert_int_equal(atomic_load(&st.lock.owner), 0);
}

/* Its frames will not leave: the kernel says what it says of the interface. */
static void an_interface_that_is_down_is_not_waited_for(void **state)
{
	(void)state;
	takes_fast_path = false;
	full = 1000000;
	kicked = -ENETDOWN;
	assert_int_equal(send_to(64), -1);
	assert_int_equal(errno, EBADF);
	assert_in_range(full, 999000, 1000000);
}

/* Nothing here tells it when to try again: the kernel has it. */
static void one_that_must_not_block_is_the_kernels(void **state)
{
	(void)state;
	takes_fast_path = false;
	full = 1000;
	assert_int_equal(send_by(64, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(posts, 0);
	sock.o.nonblock = true;
	full = 1000;
	assert_int_equal(send_to(64), -1);
	assert_int_equal(posts, 0);
	assert_in_range(full, 1, 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_next_one_takes_the_fast_path, setup),
		cmocka_unit_test_setup(a_thread_that_does_not_know_its_number_takes_the_lock_by_it,
				       setup),
		cmocka_unit_test_setup(each_datagram_takes_one_identification, setup),
		cmocka_unit_test_setup(a_place_with_just_the_room_is_enough, setup),
		cmocka_unit_test_setup(a_blocking_send_waits_for_room, setup),
		cmocka_unit_test_setup(an_interface_that_is_down_is_not_waited_for, setup),
		cmocka_unit_test_setup(one_that_must_not_block_is_the_kernels, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
