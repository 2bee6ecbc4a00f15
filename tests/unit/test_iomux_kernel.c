/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The same random script against the kernel and against us: every channel exists twice, as a kernel
 * socket that only libc sees, and as one of ours (offloaded, or a kernel socket beside offloaded
 * ones). Every result must agree.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above. */
#include <cmocka.h>

#include "fake_vfd.h"
#include "config/params.h"

#define CHANNELS 6
#define STEPS 4000
#define EVENTS_MAX 64
#define CLOSED_FD 1000

struct channel {
	bool offloaded;
	int kernel, kernel_peer; /* the kernel's twin */
	int fd, peer; /* ours; with offloaded the fake's */
	struct fake fake;
	int packets;
};

static struct channel channels[CHANNELS];
static const struct timespec zero;
static unsigned seed;
static char trace[128];

static unsigned pick(unsigned n)
{
	return (unsigned)rand_r(&seed) % n;
}

static void channel_open(struct channel *c)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
	c->kernel = pair[0];
	c->kernel_peer = pair[1];
	c->packets = 0;
	if (c->offloaded) {
		fake_open(&c->fake);
		c->fd = c->fake.fd;
		return;
	}
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
	c->fd = pair[0];
	c->peer = pair[1];
}

static void channel_close(struct channel *c)
{
	close(c->kernel);
	close(c->kernel_peer);
	vfd_close(c->fd);
	close(c->offloaded ? c->fake.peer : c->peer);
}

static void channel_arrive(struct channel *c)
{
	if (c->packets >= 5)
		return;
	c->packets++;
	assert_int_equal(send(c->kernel_peer, "x", 1, 0), 1);
	if (c->offloaded)
		fake_arrive(&c->fake);
	else
		assert_int_equal(send(c->peer, "x", 1, 0), 1);
}

static void channel_take(struct channel *c)
{
	char byte;

	if (!c->packets)
		return;
	c->packets--;
	assert_int_equal(recv(c->kernel, &byte, 1, 0), 1);
	if (c->offloaded)
		fake_take(&c->fake);
	else
		assert_int_equal(recv(c->fd, &byte, 1, 0), 1);
}

/* The object lives on under another number; epoll items stay with the old one. */
static void channel_move(struct channel *c)
{
	/* Numbers that nobody had: an old number coming back would find its old item. */
	static int moves;
	int kernel = fcntl(c->kernel, F_DUPFD, 300 + moves % 300),
	    fd = fcntl(c->fd, F_DUPFD, 600 + moves % 300);

	moves++;
	assert_true(kernel >= 0 && fd >= 0);
	if (c->offloaded)
		assert_true(vfd_dup(c->fd, fd));
	close(c->kernel);
	vfd_close(c->fd);
	c->kernel = kernel;
	c->fd = fd;
	c->fake.fd = fd;
}

static void channels_start(unsigned s, unsigned offloaded)
{
	seed = s;
	memset(channels, 0, sizeof(channels));
	for (unsigned i = 0; i < CHANNELS; i++) {
		channels[i].offloaded = offloaded >> i & 1;
		channel_open(&channels[i]);
	}
}

static void channels_stop(void)
{
	for (unsigned i = 0; i < CHANNELS; i++)
		channel_close(&channels[i]);
}

static void traffic(void)
{
	struct channel *c = &channels[pick(CHANNELS)];

	if (pick(2))
		channel_arrive(c);
	else
		channel_take(c);
}

static void expect(const char *what, int step, long kernel, long ours)
{
	if (kernel != ours)
		fail_msg("%s step %d (%s): the kernel says %ld, we say %ld", what, step, trace,
			 kernel, ours);
}

static void poll_once(int step)
{
	static const short wants[] = {
		POLLIN, POLLOUT, POLLPRI, POLLIN | POLLOUT, POLLRDNORM, POLLWRNORM | POLLIN, 0};
	struct pollfd kernel[8], ours[8];
	unsigned n = pick(9);
	int rk, ro;

	for (unsigned i = 0; i < n; i++) {
		struct channel *c = &channels[pick(CHANNELS)];
		short events = wants[pick(7)];

		kernel[i] = (struct pollfd){.fd = c->kernel, .events = events, .revents = 0x55};
		ours[i] = (struct pollfd){.fd = c->fd, .events = events, .revents = 0x55};
		if (pick(8) == 0)
			kernel[i].fd = ours[i].fd = pick(2) ? CLOSED_FD : -3;
	}
	rk = ppoll(kernel, n, &zero, NULL);
	ro = iomux_poll(ours, n, &zero, NULL);
	snprintf(trace, sizeof(trace), "%u entries", n);
	expect("poll", step, rk, ro);
	for (unsigned i = 0; i < n; i++)
		expect("poll revents", step, kernel[i].revents, ours[i].revents);
}

static void poll_agrees_with_the_kernel(void **state)
{
	(void)state;
	for (unsigned s = 1; s <= 4; s++) {
		channels_start(s, 0x15 * s & 0x3f);
		for (int step = 0; step < STEPS; step++) {
			traffic();
			poll_once(step);
		}
		channels_stop();
	}
	print_message("    4 seeds x %d polls: negative, closed and repeated fds included\n",
		      STEPS);
}

static void select_once(int step)
{
	fd_set kernel[3], ours[3];
	int kernel_n = 0, ours_n = 0, rk, ro;
	bool closed = pick(20) == 0;

	for (int k = 0; k < 3; k++) {
		FD_ZERO(&kernel[k]);
		FD_ZERO(&ours[k]);
		for (unsigned i = 0; i < CHANNELS; i++) {
			if (pick(2))
				continue;
			FD_SET(channels[i].kernel, &kernel[k]);
			FD_SET(channels[i].fd, &ours[k]);
			if (channels[i].kernel >= kernel_n)
				kernel_n = channels[i].kernel + 1;
			if (channels[i].fd >= ours_n)
				ours_n = channels[i].fd + 1;
		}
	}
	if (closed) { /* below the fd table's size: EBADF; above: ignored */
		int fd = pick(2) ? 63 : CLOSED_FD;

		FD_SET(fd, &kernel[1]);
		FD_SET(fd, &ours[1]);
		kernel_n = ours_n = fd + 1;
	}
	rk = pselect(kernel_n, &kernel[0], &kernel[1], &kernel[2], &zero, NULL);
	ro = iomux_select(ours_n, &ours[0], &ours[1], &ours[2], &zero, NULL);
	snprintf(trace, sizeof(trace), "nfds %d", ours_n);
	expect("select", step, rk, ro);
	for (int k = 0; k < 3; k++)
		for (unsigned i = 0; i < CHANNELS; i++)
			expect("select bit", step, !!FD_ISSET(channels[i].kernel, &kernel[k]),
			       !!FD_ISSET(channels[i].fd, &ours[k]));
}

static void select_agrees_with_the_kernel(void **state)
{
	(void)state;
	for (unsigned s = 1; s <= 4; s++) {
		channels_start(s, 0x15 * s & 0x3f);
		for (int step = 0; step < STEPS; step++) {
			traffic();
			select_once(step);
		}
		channels_stop();
	}
	print_message("    4 seeds x %d selects: bits and their number, EBADF\n", STEPS);
}

/* Adds up what one wait gave: data -> events. */
struct tally {
	int n;
	struct epoll_event ev[EVENTS_MAX];
};

static void tally_add(struct tally *t, const struct epoll_event *ev, int n)
{
	for (int i = 0; i < n; i++) {
		int j = 0;

		while (j < t->n && t->ev[j].data.u64 != ev[i].data.u64)
			j++;
		if (j == t->n)
			t->ev[t->n++] = (struct epoll_event){.data = ev[i].data};
		t->ev[j].events |= ev[i].events;
	}
}

static int by_data(const void *a, const void *b)
{
	const struct epoll_event *x = a, *y = b;

	return x->data.u64 < y->data.u64 ? -1 : x->data.u64 > y->data.u64;
}

static void epoll_compare(int step, int kernel_set, int set)
{
	struct epoll_event ev[EVENTS_MAX];
	struct tally kernel = {.n = 0}, ours = {.n = 0};
	int n = epoll_wait(kernel_set, ev, EVENTS_MAX, 0);

	tally_add(&kernel, ev, n);
	n = iomux_epoll_wait(set, ev, EVENTS_MAX, &zero, NULL);
	assert_true(n >= 0);
	tally_add(&ours, ev, n);
	qsort(kernel.ev, (size_t)kernel.n, sizeof(*ev), by_data);
	qsort(ours.ev, (size_t)ours.n, sizeof(*ev), by_data);
	expect("epoll_wait", step, kernel.n, ours.n);
	for (int i = 0; i < ours.n; i++) {
		expect("epoll data", step, (long)kernel.ev[i].data.u64, (long)ours.ev[i].data.u64);
		expect("epoll events", step, kernel.ev[i].events, ours.ev[i].events);
	}
}

static void epoll_change(int step, int kernel_set, int set)
{
	static const uint32_t wants[] = {
		EPOLLIN,  EPOLLOUT, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLRDHUP, EPOLLIN | EPOLLRDNORM,
		EPOLLPRI, 0};
	static const uint32_t flags[] = {0,
					 0,
					 EPOLLET,
					 EPOLLONESHOT,
					 EPOLLET | EPOLLONESHOT,
					 EPOLLEXCLUSIVE,
					 EPOLLEXCLUSIVE | EPOLLET,
					 EPOLLWAKEUP};
	static uint64_t serial;
	struct channel *c = &channels[pick(CHANNELS)];
	int op = 1 + (int)pick(3), rk, ro, ek = 0, eo = 0;
	struct epoll_event ev = {.events = wants[pick(7)] | flags[pick(8)], .data.u64 = ++serial};
	struct epoll_event copy = ev;
	bool no_event = pick(50) == 0;

	if (pick(60) == 0)
		op = 9;
	rk = epoll_ctl(kernel_set, op, c->kernel, no_event ? NULL : &ev);
	ek = rk ? errno : 0;
	ro = iomux_epoll_ctl(set, op, c->fd, no_event ? NULL : &copy);
	eo = ro ? errno : 0;
	snprintf(trace, sizeof(trace), "ctl op %d events %x %s", op, ev.events,
		 c->offloaded ? "offloaded" : "kernel");
	expect("epoll_ctl", step, ek, eo);
}

static void epoll_script(unsigned s, unsigned offloaded)
{
	int kernel_set = epoll_create1(0), set = epoll_create1(0);

	channels_start(s, offloaded);
	assert_int_equal(iomux_epoll_created(set), 0);
	for (int step = 0; step < STEPS; step++) {
		unsigned what = pick(100);

		if (what < 45)
			traffic();
		else if (what < 70)
			epoll_change(step, kernel_set, set);
		else if (what < 72)
			channel_move(&channels[pick(CHANNELS)]);
		else if (what < 75) {
			struct channel *c = &channels[pick(CHANNELS)];

			channel_close(c);
			channel_open(c);
		} else {
			epoll_compare(step, kernel_set, set);
		}
	}
	channels_stop();
	epoll_compare(STEPS, kernel_set, set);
	close(kernel_set);
	vfd_close(set);
}

static void epoll_agrees_with_the_kernel(void **state)
{
	static const unsigned mixes[] = {0x3f, 0x15, 0x01, 0x3e, 0x00};

	(void)state;
	for (unsigned m = 0; m < 5; m++)
		for (unsigned s = 1; s <= 6; s++)
			epoll_script(s + 10 * m, mixes[m]);
	print_message(
		"    30 seeds x %d steps: level, edge, oneshot, exclusive, errnos, close, dup\n",
		STEPS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poll_agrees_with_the_kernel),
		cmocka_unit_test(select_agrees_with_the_kernel),
		cmocka_unit_test(epoll_agrees_with_the_kernel),
	};

	libc_load();
	params.select_poll = 0;
	params.select_poll_os_ratio = 1;
	params.select_skip_os = 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
