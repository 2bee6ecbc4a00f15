/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The statistics pages: blocks, limits, fork, permissions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "config/params.h"
#include "stats/stats.h"

static char dir[] = "/tmp/test_stats.XXXXXX";
static char path[64];

static int make_dir(void **state)
{
	(void)state;
	libc_load();
	snprintf(dir, sizeof(dir), "/tmp/test_stats.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/vmastat.%d", dir, getpid());
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	stats_stop();
	unlink(path);
	return rmdir(dir);
}

/* The file as another program sees it. */
static const struct vma_stats_header *map_file(void)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	void *p;

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	assert_true(p != MAP_FAILED);
	return p;
}

static const struct vma_stats_socket *file_sockets(const struct vma_stats_header *h)
{
	return (const void *)((const char *)h + h->header_size);
}

static void blocks_work_before_and_without_a_file(void **state)
{
	struct vma_stats_socket *s = stats_socket_get(5);
	struct vma_stats_iomux *m = stats_iomux_get(STATS_POLL);

	(void)state;
	assert_int_equal(s->fd, 5);
	assert_int_equal(s->enabled, 1);
	assert_int_equal(s->rx.packets, 0);
	stats_add(&s->rx.packets, 3);
	assert_int_equal(s->rx.packets, 3);
	assert_ptr_equal(m, stats_iomux_get(STATS_POLL));
	assert_ptr_not_equal(m, stats_iomux_get(STATS_SELECT));
	stats_control(NULL);
	assert_int_equal(stats_start("", 10), 0);
	assert_int_equal(stats_start(NULL, 10), 0);
	stats_iomux_put(m);
	stats_socket_put(s);
	stats_socket_put(NULL);
}

static void what_closed_ones_counted_stays_in_the_sums(void **state)
{
	struct vma_stats_socket *s[3];
	struct vma_stats_ring *r = stats_ring_get();
	const struct vma_stats_header *h;
	struct vma_stats_socket was;

	(void)state;
	assert_int_equal(stats_start(dir, 1), 0);
	h = map_file();
	/* The first has a place in the file, the last none. */
	for (int i = 0; i < 3; i++) {
		s[i] = stats_socket_get(5 + i);
		stats_add(&s[i]->rx.packets, 3);
		stats_add(&s[i]->tx.os_errors, 4);
		stats_add(&s[i]->rx_poll_os_hit, 5);
		stats_add(&s[i]->rx_ready_packets, 99);
		stats_add(&s[i]->rx_drop_packets, 6);
		stats_add(&s[i]->rx_drop_bytes, 7);
		stats_add(&s[i]->rx_zcopy_buffers, 99);
		stats_add(&s[i]->rx_ring_migrations, 8);
		stats_add(&s[i]->tx_dummy, 9);
	}
	stats_add(&r->rx_packets, 10);
	stats_add(&r->drop_other, 11);
	was = h->closed_sockets; /* of the tests before */
	for (int i = 0; i < 3; i++)
		stats_socket_put(s[i]);
	stats_ring_put(r);
	assert_int_equal(h->closed_sockets.rx.packets - was.rx.packets, 9);
	assert_int_equal(h->closed_sockets.tx.os_errors - was.tx.os_errors, 12);
	assert_int_equal(h->closed_sockets.rx_poll_os_hit - was.rx_poll_os_hit, 15);
	assert_int_equal(h->closed_sockets.rx_drop_packets - was.rx_drop_packets, 18);
	assert_int_equal(h->closed_sockets.rx_drop_bytes - was.rx_drop_bytes, 21);
	assert_int_equal(h->closed_sockets.rx_ring_migrations - was.rx_ring_migrations, 24);
	assert_int_equal(h->closed_sockets.tx_dummy - was.tx_dummy, 27);
	assert_int_equal(h->closed_sockets.rx_ready_packets - was.rx_ready_packets, 0);
	assert_int_equal(h->closed_sockets.rx_zcopy_buffers - was.rx_zcopy_buffers, 0);
	assert_int_equal(h->closed_rings.rx_packets, 10);
	assert_int_equal(h->closed_rings.drop_other, 11);
	/* Another one in the same block begins at 0. */
	s[0] = stats_socket_get(5);
	assert_int_equal(s[0]->rx.packets, 0);
	stats_socket_put(s[0]);
	assert_int_equal(h->closed_sockets.rx.packets - was.rx.packets, 9);
	stats_stop();
}

static void blocks_from_before_the_start_are_in_the_file(void **state)
{
	struct vma_stats_socket *s = stats_socket_get(5);
	struct vma_stats_iomux *m = stats_iomux_get(STATS_SELECT);
	const struct vma_stats_header *h;

	(void)state;
	stats_add(&s->tx.bytes, 7);
	assert_int_equal(stats_start(dir, 10), 0);
	assert_int_equal(stats_start(dir, 10), 0);
	stats_add(&s->tx.bytes, 1);
	stats_add(&m->timeouts, 2);
	h = map_file();
	assert_int_equal(h->magic, VMA_STATS_MAGIC);
	assert_int_equal(h->pid, getpid());
	assert_int_equal(h->max_sockets, 10);
	assert_int_equal(file_sockets(h)[0].fd, 5);
	assert_int_equal(file_sockets(h)[0].tx.bytes, 8);
	assert_true(h->select.timeouts >= 2);
	stats_socket_put(s);
	assert_int_equal(file_sockets(h)[0].enabled, 0);
	stats_stop();
	assert_int_equal(access(path, F_OK), -1);
}

static void more_sockets_than_the_file_holds_are_counted_privately(void **state)
{
	static struct vma_stats_socket *s[VMA_STATS_SOCKETS_MAX + 50];
	const struct vma_stats_header *h;
	unsigned n = sizeof(s) / sizeof(s[0]), shown = 0;

	(void)state;
	assert_int_equal(stats_start(dir, 3), 0);
	for (unsigned i = 0; i < n; i++) {
		s[i] = stats_socket_get((int)i);
		assert_int_equal(s[i]->fd, i);
		stats_add(&s[i]->rx.packets, i);
	}
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(s[i]->rx.packets, i);
	h = map_file();
	for (unsigned i = 0; i < h->max_sockets; i++)
		shown += file_sockets(h)[i].enabled;
	assert_int_equal(shown, 3);
	for (unsigned i = 0; i < n; i++)
		stats_socket_put(s[i]);
}

static void a_socket_that_nobody_would_see_gets_no_block(void **state)
{
	static struct vma_stats_socket *s[VMA_STATS_SOCKETS_MAX];
	const char *before = params.stats_file;
	struct vma_stats_socket *more;

	(void)state;
	assert_int_equal(stats_start(dir, 3), 0);
	for (unsigned i = 0; i < VMA_STATS_SOCKETS_MAX; i++) {
		s[i] = stats_socket_if_shown((int)i);
		assert_non_null(s[i]);
	}
	assert_null(stats_socket_if_shown(7));
	/* What it counted would be written at its end. */
	params.stats_file = "/tmp/none";
	more = stats_socket_if_shown(7);
	params.stats_file = before;
	assert_non_null(more);
	stats_socket_put(more);
	/* One that has gone makes room, wherever it stood. */
	stats_socket_put(s[777]);
	assert_ptr_equal(stats_socket_if_shown(7), s[777]);
	for (unsigned i = 0; i < VMA_STATS_SOCKETS_MAX; i++)
		stats_socket_put(s[i]);
}

static void a_huge_limit_is_cut(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stats_start(dir, 4000000000u), 0);
	assert_int_equal(map_file()->max_sockets, VMA_STATS_SOCKETS_MAX);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size < 4 << 20);
}

static void a_block_s_next_owner_begins_at_zero_with_a_new_generation(void **state)
{
	struct vma_stats_socket *s = stats_socket_get(1), *again;
	uint32_t generation = s->generation;

	(void)state;
	stats_add(&s->rx.packets, 9);
	stats_socket_put(s);
	again = stats_socket_get(2);
	assert_ptr_equal(s, again);
	assert_int_equal(again->rx.packets, 0);
	assert_int_equal(again->generation, generation + 1);
	stats_socket_put(again);
}

static void rings_queues_pools_and_epolls_are_never_refused(void **state)
{
	struct vma_stats_ring *r[VMA_STATS_RINGS + 2];
	struct vma_stats_cq *c[VMA_STATS_CQS + 2];
	struct vma_stats_pool *p[VMA_STATS_POOLS + 2];
	struct vma_stats_iomux *m[VMA_STATS_EPOLLS + 2];

	(void)state;
#define ALL(a, get)                                                                                \
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++) {                                    \
		a[i] = get;                                                                        \
		assert_int_equal(a[i]->enabled, 1);                                                \
		for (size_t j = 0; j < i; j++)                                                     \
			assert_ptr_not_equal(a[i], a[j]);                                          \
	}
#define EACH(a, put)                                                                               \
	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)                                      \
	put(a[i])
	for (int twice = 0; twice < 2; twice++) {
		ALL(r, stats_ring_get());
		ALL(c, stats_cq_get());
		ALL(p, stats_pool_get(true));
		ALL(m, stats_iomux_get(100));
		EACH(r, stats_ring_put);
		EACH(c, stats_cq_put);
		EACH(p, stats_pool_put);
		EACH(m, stats_iomux_put);
	}
}

static void child_status(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* What a child must find; its exit code is the number of the first thing that is not so. */
static int forked_child(struct vma_stats_socket *inherited, struct vma_stats_ring *ring)
{
	struct vma_stats_socket *own;
	char name[96];

	stats_forked();
	/* Counts into its own memory, zeroed. */
	if (inherited->rx.packets)
		return 1;
	stats_add(&inherited->rx.packets, 1000);
	stats_add(&ring->rx_packets, 1000);
	own = stats_socket_get(30);
	if (own == inherited)
		return 2;
	if (stats_start(dir, 4))
		return 3;
	snprintf(name, sizeof(name), "%s/vmastat.%d", dir, getpid());
	if (access(name, F_OK) || access(path, F_OK))
		return 4;
	stats_socket_put(inherited);
	stats_ring_put(ring);
	stats_socket_put(own);
	stats_stop();
	if (!access(name, F_OK))
		return 5;
	return access(path, F_OK) ? 6 : 0;
}

static void a_forked_child_neither_counts_in_nor_removes_the_parent_s_file(void **state)
{
	struct vma_stats_socket *s = stats_socket_get(5);
	struct vma_stats_ring *r = stats_ring_get();
	const struct vma_stats_header *h;
	pid_t pid;

	(void)state;
	assert_int_equal(stats_start(dir, 10), 0);
	stats_add(&s->rx.packets, 1);
	pid = fork();
	if (!pid)
		_exit(forked_child(s, r));
	child_status(pid);
	/* Nor does one that knows nothing of the library. */
	pid = fork();
	if (!pid) {
		stats_stop();
		_exit(0);
	}
	child_status(pid);
	h = map_file();
	assert_int_equal(file_sockets(h)[0].rx.packets, 1);
	assert_int_equal(h->rings[0].rx_packets, 0);
	stats_socket_put(s);
	stats_ring_put(r);
}

static void a_grandchild_has_a_file_of_its_own(void **state)
{
	struct vma_stats_socket *s = stats_socket_get(5);
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(stats_start(dir, 10), 0);
	pid = fork();
	if (!pid) {
		stats_forked();
		stats_start(dir, 10);
		pid = fork();
		if (!pid)
			_exit(forked_child(s, stats_ring_get()));
		waitpid(pid, &status, 0);
		stats_socket_put(s);
		stats_stop();
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100);
	}
	child_status(pid);
	stats_socket_put(s);
}

static void the_file_is_made_safely(void **state)
{
	char victim[96];
	struct stat st;
	int fd;

	(void)state;
	/* A link that waits under our name must not be followed. */
	snprintf(victim, sizeof(victim), "%s/victim", dir);
	fd = open(victim, O_CREAT | O_WRONLY, 0600);
	assert_int_equal(write(fd, "precious", 8), 8);
	close(fd);
	assert_int_equal(symlink(victim, path), 0);
	umask(077);
	assert_int_equal(stats_start(dir, 10), 0);
	umask(022);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 01644);
	assert_int_equal(stat(victim, &st), 0);
	assert_int_equal(st.st_size, 8);
	unlink(victim);
}

static void without_directory_or_space_counting_goes_on(void **state)
{
	struct rlimit small = {4096, RLIM_INFINITY}, old;
	struct vma_stats_socket *s = stats_socket_get(1);

	(void)state;
	assert_int_equal(stats_start("/nonexistent", 10), -ENOENT);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small.rlim_max = old.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(stats_start(dir, 10), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	stats_add(&s->rx.packets, 2);
	assert_int_equal(s->rx.packets, 2);
	stats_socket_put(s);
	/* And nothing was left behind: the teardown's rmdir() proves it. */
}

static int dumped_fd, dumped_level;

static void dump(int fd, int level)
{
	dumped_fd = fd;
	dumped_level = level;
}

static void control_words_are_followed_within_their_ranges(void **state)
{
	struct vma_stats_header *h;
	int fd, level = log_level_now;

	(void)state;
	assert_int_equal(stats_start(dir, 1), 0);
	fd = open(path, O_RDWR);
	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	assert_true(h != MAP_FAILED);
	h->log_level = LOG_DEBUG;
	h->dump_fd_level = LOG_WARN;
	h->dump_fd = 17;
	stats_control(dump);
	assert_int_equal(log_level_now, LOG_DEBUG);
	assert_int_equal(dumped_fd, 17);
	assert_int_equal(dumped_level, LOG_WARN);
	assert_int_equal(h->dump_fd, VMA_STATS_DUMP_NONE);
	h->log_level = 1000;
	stats_control(dump);
	assert_int_equal(log_level_now, LOG_DEBUG);
	assert_int_equal(h->log_level, LOG_DEBUG);
	/* A change from inside shows outside. */
	log_level_now = level;
	stats_control(NULL);
	assert_int_equal(h->log_level, level);
	munmap(h, sizeof(*h));
}

static void *count_and_churn(void *arg)
{
	struct vma_stats_socket *mine = stats_socket_get(1);

	for (int i = 0; i < 2000; i++) {
		struct vma_stats_socket *s = stats_socket_get(i);

		stats_add(&s->rx.packets, 1);
		stats_add(&mine->rx.packets, 1);
		assert_int_equal(s->fd, i);
		stats_socket_put(s);
	}
	*(uint64_t *)arg = mine->rx.packets;
	stats_socket_put(mine);
	return NULL;
}

static void threads_take_and_give_while_the_file_comes_and_goes(void **state)
{
	pthread_t t[3];
	uint64_t counted[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, count_and_churn, &counted[i]), 0);
	assert_int_equal(stats_start(dir, 2), 0);
	stats_control(NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	/* One count may be lost while the file takes the memory's place. */
	for (int i = 0; i < 3; i++)
		assert_in_range(counted[i], 1990, 2000);
}

static void addresses_of_both_families_have_their_text(void **state)
{
	struct vma_addr v4 = {{[10] = 255, [11] = 255, [12] = 10, [15] = 1}},
			v6 = {{[0] = 0xfe, [1] = 0x80, [15] = 1}};
	char text[STATS_ADDR_TEXT];

	(void)state;
	assert_string_equal(stats_addr_text(text, &v4, AF_INET, 80), "10.0.0.1:80");
	assert_string_equal(stats_addr_text(text, &v6, AF_INET6, 80), "[fe80::1]:80");
	assert_string_equal(stats_addr_text(text, &v4, AF_INET, -1), "10.0.0.1");
	assert_string_equal(stats_addr_text(text, &v6, AF_INET6, -1), "fe80::1");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(blocks_work_before_and_without_a_file),
		TEST(what_closed_ones_counted_stays_in_the_sums),
		TEST(blocks_from_before_the_start_are_in_the_file),
		TEST(more_sockets_than_the_file_holds_are_counted_privately),
		TEST(a_socket_that_nobody_would_see_gets_no_block),
		TEST(a_huge_limit_is_cut),
		TEST(a_block_s_next_owner_begins_at_zero_with_a_new_generation),
		TEST(rings_queues_pools_and_epolls_are_never_refused),
		TEST(a_forked_child_neither_counts_in_nor_removes_the_parent_s_file),
		TEST(a_grandchild_has_a_file_of_its_own),
		TEST(the_file_is_made_safely),
		TEST(without_directory_or_space_counting_goes_on),
		TEST(control_words_are_followed_within_their_ranges),
		TEST(threads_take_and_give_while_the_file_comes_and_goes),
		TEST(addresses_of_both_families_have_their_text),
	};

	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
