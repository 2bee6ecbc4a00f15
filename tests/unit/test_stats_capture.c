/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets for vma_stats capture: from the library's side to the tool's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "runtime/libc.h"
#include "runtime/lock.h"
#include "stats/area.h"
#include "stats/stats.h"

/* The tool's reader, and how it comes to the ring. */
#include "../../tools/vma_stats/capture_ring.c"
#include "../../tools/vma_stats/capture_process.c"
#include "../../tools/vma_stats/fields.c"
#include "../../tools/vma_stats/snapshot.c"
#include "../../tools/vma_stats/source.c"

#define NUMBER 4711
#define THREADS 4
#define FRAMES 20000

static char dir[] = "/tmp/test_stats_capture.XXXXXX";
static char path[64];
static struct vma_stats_header *words; /* as a tool has them */
static struct capture_ring ring;

static void ask_for(uint32_t number, uint32_t bytes, uint32_t snap)
{
	words->capture_snap = snap;
	words->capture_bytes = bytes;
	words->capture = number;
}

static int make_file(void **state)
{
	int fd;

	(void)state;
	libc_load();
	snprintf(dir, sizeof(dir), "/tmp/test_stats_capture.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/vmastat.%d", dir, getpid());
	assert_int_equal(stats_start(dir, 10), 0);
	fd = open(path, O_RDWR);
	words = mmap(NULL, sizeof(*words), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_true(words != MAP_FAILED);
	return 0;
}

static void answer(void)
{
	assert_true(stats_capture_follow());
	assert_int_equal(words->capture_fd, -1);
	stats_capture_show();
	assert_true(words->capture_fd >= 0);
}

/* What the library gives, opened anew: the lock is of the open file, so it is another one's. */
static int open_given(void)
{
	char name[64];

	snprintf(name, sizeof(name), "/proc/self/fd/%d", words->capture_fd);
	return open(name, O_RDWR);
}

/* The tool comes. */
static void come(void)
{
	char why[WHY_LEN];

	answer();
	assert_int_equal(capture_ring_open(&ring, open_given(), words->capture_is, why), 0);
}

static int end_all(void **state)
{
	(void)state;
	words->capture = 0;
	stats_capture_follow();
	stats_capture_follow();
	stats_stop();
	munmap(words, sizeof(*words));
	return rmdir(dir);
}

static bool put(const void *bytes, size_t len)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, len};
	struct stats_frame f = {.direction = VMA_CAPTURE_OUT,
				.ifindex = 7,
				.ifname = "eth7",
				.time_ns = 1,
				.iov = &iov,
				.iovcnt = 1};
	struct stats_kept k;

	if (!stats_capture_keep(&k, &f))
		return false;
	stats_capture_done(&k);
	return true;
}

static void nothing_is_kept_until_somebody_asks(void **state)
{
	(void)state;
	assert_false(put("x", 1));
	assert_false(stats_capture_follow());
	ask_for(NUMBER, 1 << 20, 100);
	come();
	assert_true(put("x", 1));
	words->capture = 0;
	assert_false(stats_capture_follow());
	assert_false(put("x", 1));
	assert_int_equal(words->capture_fd, -1);
	capture_ring_close(&ring);
}

static void a_frame_is_cut_to_what_the_tool_wants(void **state)
{
	uint8_t frame[300];
	struct capture_packet p;
	char name[16];

	(void)state;
	for (unsigned i = 0; i < sizeof(frame); i++)
		frame[i] = (uint8_t)i;
	ask_for(NUMBER, 1 << 20, 100);
	come();
	assert_int_equal(capture_ring_peek(&ring, &p), 0);
	assert_true(put(frame, sizeof(frame)));
	assert_int_equal(capture_ring_peek(&ring, &p), 1);
	assert_int_equal(p.len, 300);
	assert_int_equal(p.caplen, 100);
	assert_memory_equal(p.data, frame, 100);
	assert_int_equal(p.fd, -1);
	capture_ring_name(&ring, p.interface, name);
	assert_string_equal(name, "eth7");
	capture_ring_drop(&ring, &p);
	assert_int_equal(capture_ring_peek(&ring, &p), 0);
	capture_ring_close(&ring);
}

static void a_second_reader_is_told(void **state)
{
	struct capture_ring second;
	char name[64], why[WHY_LEN];
	int fd;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	come();
	snprintf(name, sizeof(name), "/proc/self/fd/%d", words->capture_fd);
	fd = open(name, O_RDWR);
	assert_int_equal(capture_ring_open(&second, fd, NUMBER, why), 1);
	close(fd);
	/* The first one stays, ... */
	assert_true(stats_capture_follow());
	/* ... and when it goes, that is the end. */
	capture_ring_close(&ring);
	assert_false(stats_capture_follow());
	assert_int_equal(words->capture, 0);
}

static const struct capture_wanted wanted = {
	.dir = dir, .snap = 100, .bytes = VMA_CAPTURE_BYTES_MIN};

static void a_tool_that_takes_the_place_of_a_killed_one_waits_for_its_end(void **state)
{
	struct capture_process p;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	come();
	capture_ring_close(&ring);
	/* The library has not looked yet. */
	capture_process_init(&p, getpid());
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_NEW);
	assert_null(p.ring.shared);
	assert_false(stats_capture_follow());
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_ASKED);
	stats_capture_follow();
	answer();
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_ON);
	capture_process_close(&p);
	assert_null(p.ring.shared);
}

static void a_tool_leaves_a_ring_alone_that_another_one_is_about_to_read(void **state)
{
	char why[WHY_LEN];
	struct capture_process p;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	answer();
	capture_process_init(&p, getpid());
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_NEW);
	assert_true(stats_capture_follow());
	assert_int_equal(capture_ring_open(&ring, open_given(), NUMBER, why), 0);
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_REFUSED);
	assert_true(stats_capture_follow());
	capture_ring_close(&ring);
}

static void a_tool_that_was_overtaken_when_it_asked_is_told(void **state)
{
	struct capture_process p;

	(void)state;
	capture_process_init(&p, getpid());
	capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_ASKED);
	ask_for(NUMBER, 1 << 20, 100);
	come();
	for (unsigned i = 0; i < 2; i++)
		capture_process_step(&p, &wanted);
	assert_int_equal(p.state, CAPTURE_REFUSED);
	assert_string_equal(p.why, "another vma_stats captures it");
	capture_ring_close(&ring);
}

static void what_is_no_ring_is_given_back(void **state)
{
	struct vma_capture_header *h;
	char why[WHY_LEN];
	int fd;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	answer();
	fd = open_given();
	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(h != MAP_FAILED);
	assert_int_equal(capture_ring_open(&ring, fd, NUMBER + 1, why), -1);
	assert_null(ring.shared);
	h->magic++;
	assert_int_equal(capture_ring_open(&ring, fd, NUMBER, why), -1);
	assert_null(ring.shared);
	assert_int_equal(h->locked, 0);
	munmap(h, sizeof(*h));
	close(fd);
}

/* ThreadSanitizer's runtime keeps a signal blocked whose handler has left by siglongjmp(). */
#ifndef __SANITIZE_THREAD__
static void a_file_that_is_cut_does_not_end_the_tool(void **state)
{
	char cut[80], why[WHY_LEN];
	struct source src;
	int fd;

	(void)state;
	snprintf(cut, sizeof(cut), "%s/vmastat.1", dir);
	fd = open(cut, O_RDWR | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(source_open(&src, dir, 1, true, why), 0);
	source_put32(&src, 4096, 0x01020304);
	assert_int_equal(((__u32 *)src.map)[1024], 0x01020304);
	assert_int_equal(source_get64(&src, 4096), 0x01020304);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(source_get64(&src, 4096), 0);
	source_put32(&src, 4096, 1);
	source_put64(&src, 4096, 1);
	source_close(&src);
	close(fd);
	unlink(cut);
}
#endif

static void a_full_ring_counts_and_goes_on_when_it_was_read(void **state)
{
	static uint8_t frame[4000];
	struct capture_packet p;
	unsigned kept = 0, lost;

	(void)state;
	ask_for(NUMBER, 1 << 20, 4000);
	come();
	while (put(frame, sizeof(frame)))
		kept++;
	assert_true(kept > 200 && kept < 300);
	put(frame, sizeof(frame));
	lost = 2;
	assert_int_equal(capture_ring_peek(&ring, &p), 1);
	assert_int_equal(capture_ring_lost(&ring, p.interface), lost);
	/* Many times around, over the end in all ways. */
	for (unsigned i = 0; i < 5000; i++) {
		size_t len = 1 + i % sizeof(frame);

		memset(frame, (int)i, len);
		assert_int_equal(capture_ring_peek(&ring, &p), 1);
		capture_ring_drop(&ring, &p);
		assert_true(put(frame, len));
	}
	while (capture_ring_peek(&ring, &p) == 1)
		capture_ring_drop(&ring, &p);
	/* Nothing of what was there before is taken for one. */
	assert_int_equal(capture_ring_peek(&ring, &p), 0);
	assert_true(put(frame, 64));
	assert_int_equal(capture_ring_peek(&ring, &p), 1);
	assert_memory_equal(p.data, frame, 64);
	capture_ring_close(&ring);
}

static void reading_ends_while_somebody_writes_on(void **state)
{
	static uint8_t frame[4000];
	struct capture_packet p;
	unsigned n = 0;

	(void)state;
	ask_for(NUMBER, 1 << 20, 4000);
	come();
	while (put(frame, sizeof(frame)))
		n++;
	capture_ring_last(&ring);
	for (; capture_ring_peek(&ring, &p) == 1; n--) {
		assert_true(n > 0);
		capture_ring_drop(&ring, &p);
		assert_true(put(frame, sizeof(frame)));
	}
	/* All that was there, and no more than has room. */
	assert_true(n <= 1);
	capture_ring_close(&ring);
}

static bool handled;

static void handle(void)
{
	lock_thread.deferred = false;
	handled = true;
}

static void signal_handlers_wait_until_a_frame_is_shown(void **state)
{
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	struct stats_frame f = {.ifindex = 7, .ifname = "eth7", .iov = &iov, .iovcnt = 1};
	void (*before)(void) = lock_deferred_fn;
	struct stats_kept k;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	come();
	lock_deferred_fn = handle;
	assert_true(stats_capture_keep(&k, &f));
	assert_true(lock_thread.depth > 0);
	lock_thread.deferred = true;
	assert_false(handled);
	stats_capture_done(&k);
	assert_true(handled);
	assert_int_equal(lock_thread.depth, 0);
	lock_deferred_fn = before;
	capture_ring_close(&ring);
}

static char *late_name; /* nobody can read it yet */
static char name_of_second[16];

static void second_writer(int signal)
{
	struct capture_packet p;

	(void)signal;
	if (mprotect(late_name, 4096, PROT_READ))
		abort();
	put("x", 1);
	if (capture_ring_peek(&ring, &p) == 1)
		capture_ring_name(&ring, p.interface, name_of_second);
}

/* It comes when the first one has the interface's place, and is about to read the name. */
static void a_frame_has_its_interface_when_another_thread_was_first(void **state)
{
	struct sigaction action = {.sa_handler = second_writer, .sa_flags = SA_NODEFER}, before;
	struct iovec iov = {(void *)(uintptr_t) "x", 1};
	struct stats_frame f = {.ifindex = 7, .iov = &iov, .iovcnt = 1};
	struct stats_kept k;

	(void)state;
	late_name = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(late_name != MAP_FAILED);
	strcpy(late_name, "eth7");
	f.ifname = late_name;
	mprotect(late_name, 4096, PROT_NONE);
	ask_for(NUMBER, 1 << 20, 100);
	come();
	sigaction(SIGSEGV, &action, &before);
	assert_true(stats_capture_keep(&k, &f));
	sigaction(SIGSEGV, &before, NULL);
	stats_capture_done(&k);
	assert_string_equal(name_of_second, "eth7");
	munmap(late_name, 4096);
	capture_ring_close(&ring);
}

static int (*real_fcntl)(int fd, int cmd, ...);
static int mutex_was, child_status;

static void look_at_the_mutex_and_fork(int fd)
{
	pid_t pid;

	/* The functions themselves: the lock checker's macros do not know of the first. */
	mutex_was = (pthread_mutex_trylock)(&stats_mutex);
	if (!mutex_was)
		(pthread_mutex_unlock)(&stats_mutex);
	pid = fork();
	if (!pid) {
		stats_forked();
		_exit(real_fcntl(fd, F_GETFD) != -1 || stats_capture_on());
	}
	waitpid(pid, &child_status, 0);
}

static int fcntl_in_the_middle(int fd, int cmd, ...)
{
	va_list args;
	void *arg;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	if (cmd == F_ADD_SEALS)
		look_at_the_mutex_and_fork(fd);
	return real_fcntl(fd, cmd, arg);
}

static void memory_is_made_without_the_mutex_and_a_child_gives_it_back(void **state)
{
	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	real_fcntl = raw.fcntl;
	raw.fcntl = fcntl_in_the_middle;
	mutex_was = child_status = -1;
	come();
	raw.fcntl = real_fcntl;
	assert_int_equal(mutex_was, 0);
	assert_int_equal(child_status, 0);
	capture_ring_close(&ring);
}

static _Atomic unsigned kept_all;

static void *write_all(void *arg)
{
	uint32_t frame[40];

	for (uint32_t i = 0; i < FRAMES; i++) {
		for (unsigned w = 0; w < 40; w++)
			frame[w] = (uint32_t)(uintptr_t)arg << 24 | i;
		if (put(frame, 4 + i % 157))
			atomic_fetch_add(&kept_all, 1);
	}
	return NULL;
}

/* One packet, if there is one: its words are of one frame, and the thread's frames come in order.
 */
static unsigned check_one(uint32_t last[THREADS])
{
	struct capture_packet p;
	uint32_t word, first;

	if (capture_ring_peek(&ring, &p) != 1)
		return 0;
	memcpy(&first, p.data, 4);
	for (uint32_t at = 4; at + 4 <= p.caplen; at += 4) {
		memcpy(&word, p.data + at, 4);
		assert_int_equal(word, first);
	}
	assert_true(first >> 24 < THREADS);
	assert_true((first & 0xffffff) + 1 > last[first >> 24]);
	last[first >> 24] = (first & 0xffffff) + 1;
	capture_ring_drop(&ring, &p);
	return 1;
}

static void several_threads_write_while_it_is_read(void **state)
{
	pthread_t thread[THREADS];
	uint32_t last[THREADS] = {0};
	unsigned read = 0, lost = 0;

	(void)state;
	ask_for(NUMBER, 1 << 20, 4000);
	come();
	for (uintptr_t t = 0; t < THREADS; t++)
		pthread_create(&thread[t], NULL, write_all, (void *)t);
	while (read + lost < THREADS * FRAMES) {
		read += check_one(last);
		lost = (unsigned)capture_ring_lost(&ring, 0);
	}
	for (unsigned t = 0; t < THREADS; t++)
		pthread_join(thread[t], NULL);
	assert_int_equal(read, kept_all);
	assert_int_equal(check_one(last), 0);
	capture_ring_close(&ring);
}

static void what_the_tool_writes_is_not_believed(void **state)
{
	static const uint64_t tails[] = {1, 64, UINT64_MAX, 1ull << 63, 1ull << 21, 0};
	static uint8_t frame[4000];

	(void)state;
	ask_for(NUMBER, 1 << 20, 1 << 18);
	come();
	for (unsigned n = 0; n < 6000; n++) {
		memset(ring.shared, 0xff, sizeof(*ring.shared));
		ring.shared->tail = tails[n % 6];
		put(frame, sizeof(frame));
	}
	capture_ring_close(&ring);
}

static void a_child_does_not_write_to_it(void **state)
{
	struct capture_packet p;
	int status;
	pid_t pid;

	(void)state;
	ask_for(NUMBER, 1 << 20, 100);
	come();
	pid = fork();
	if (!pid) {
		stats_forked();
		_exit(put("child", 5) || stats_capture_follow());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(capture_ring_peek(&ring, &p), 0);
	assert_true(put("parent", 6));
	assert_int_equal(capture_ring_peek(&ring, &p), 1);
	capture_ring_close(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nothing_is_kept_until_somebody_asks, make_file,
						end_all),
		cmocka_unit_test_setup_teardown(a_frame_is_cut_to_what_the_tool_wants, make_file,
						end_all),
		cmocka_unit_test_setup_teardown(a_second_reader_is_told, make_file, end_all),
		cmocka_unit_test_setup_teardown(
			a_tool_that_takes_the_place_of_a_killed_one_waits_for_its_end, make_file,
			end_all),
		cmocka_unit_test_setup_teardown(
			a_tool_leaves_a_ring_alone_that_another_one_is_about_to_read, make_file,
			end_all),
		cmocka_unit_test_setup_teardown(a_tool_that_was_overtaken_when_it_asked_is_told,
						make_file, end_all),
		cmocka_unit_test_setup_teardown(what_is_no_ring_is_given_back, make_file, end_all),
#ifndef __SANITIZE_THREAD__
		cmocka_unit_test_setup_teardown(a_file_that_is_cut_does_not_end_the_tool, make_file,
						end_all),
#endif
		cmocka_unit_test_setup_teardown(a_full_ring_counts_and_goes_on_when_it_was_read,
						make_file, end_all),
		cmocka_unit_test_setup_teardown(reading_ends_while_somebody_writes_on, make_file,
						end_all),
		cmocka_unit_test_setup_teardown(signal_handlers_wait_until_a_frame_is_shown,
						make_file, end_all),
		cmocka_unit_test_setup_teardown(
			a_frame_has_its_interface_when_another_thread_was_first, make_file,
			end_all),
		cmocka_unit_test_setup_teardown(
			memory_is_made_without_the_mutex_and_a_child_gives_it_back, make_file,
			end_all),
		cmocka_unit_test_setup_teardown(several_threads_write_while_it_is_read, make_file,
						end_all),
		cmocka_unit_test_setup_teardown(what_the_tool_writes_is_not_believed, make_file,
						end_all),
		cmocka_unit_test_setup_teardown(a_child_does_not_write_to_it, make_file, end_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
