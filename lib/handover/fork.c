/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(), the owner's side: its engine goes on serving the connections. One goes to the kernel (tcp_home.c) when a child
 * claims it, and when this process lets go of it while a child may still have a copy. In doubt it goes: that is always right.
 */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/libc.h"
#include "runtime/log.h"
#include "runtime/worker.h"
#include "socket/tcp_claim.h"
#include "socket/tcp_int.h"

static struct claims *_Atomic mine; /* NULL: this process has not forked with connections */
static int wake_fd = -1; /* bound to mine->addr */
static struct lock make_lock;

/* --- holders */

/* The process has ended, and its descriptors are closed. In doubt false. */
static bool has_ended(pid_t pid)
{
	siginfo_t si = {.si_pid = 0};
	int err = errno;
	bool ended = kill(pid, 0) && errno == ESRCH;

	/* A child of ours that nobody has waited for yet; another's is taken for alive until it is. */
	if (!ended && !waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT))
		ended = si.si_pid == pid;
	errno = err;
	return ended;
}

/* Gives the entries of dead processes back. True: one that is left has what was made at born. */
static bool held_since(struct claims *c, uint32_t born)
{
	uint32_t lost = atomic_load(&c->lost);
	bool held = lost && lost >= born;

	for (unsigned i = 0; i < CLAIM_HOLDERS; i++) {
		struct claim_holder *h = &c->holders[i];
		int32_t pid = atomic_load(&h->pid);

		if (!pid || (pid > 0 && has_ended(pid) && atomic_compare_exchange_strong(&h->pid, &pid, 0)))
			continue;
		held = held || atomic_load(&h->seq) >= born;
	}
	return held;
}

struct claim_holder *claim_hold(struct claims *c)
{
	for (unsigned i = 0; i < CLAIM_HOLDERS; i++) {
		struct claim_holder *h = &c->holders[i];
		int32_t free = 0;

		if (!atomic_load(&h->pid) && atomic_compare_exchange_strong(&h->pid, &free, CLAIM_PENDING)) {
			atomic_store(&h->seq, CLAIM_NOT_YET);
			return h;
		}
	}
	return NULL;
}

void claim_lost(struct claims *c, uint32_t seq)
{
	uint32_t lost = atomic_load(&c->lost);

	while (lost < seq && !atomic_compare_exchange_weak(&c->lost, &lost, seq))
		;
}

/* --- words */

static _Atomic uint64_t *word_of(const struct tsock *s)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);

	return c && s->id < CLAIM_WORDS ? &c->words[s->id] : NULL;
}

/* Who sleeps on the word looks again. */
static void wake(_Atomic uint64_t *word)
{
	/* Its lower half, on the machines that this runs on. */
	libc_raw(SYS_futex, (long)(uintptr_t)word, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

void tsock_claim_new(struct tsock *s)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);
	_Atomic uint64_t *word = word_of(s);
	uint64_t w;

	s->born = c ? atomic_load(&c->seq) : 0;
	if (!word)
		return;
	w = atomic_load(word);
	while (!atomic_compare_exchange_weak(word, &w, (uint64_t)(claim_gen(w) + 1) << 32))
		;
	if (claim_state(w) == CLAIM_WANTED)
		wake(word);
}

static void answer(struct tsock *s, enum claim_state state)
{
	_Atomic uint64_t *word = word_of(s);
	uint64_t w;

	if (!word)
		return;
	w = atomic_load(word);
	while (claim_state(w) < CLAIM_HOME && !atomic_compare_exchange_weak(word, &w, (w & ~0xffull) | state))
		;
	if (claim_state(w) == CLAIM_WANTED)
		wake(word);
}

void tsock_claim_home(struct tsock *s)
{
	answer(s, CLAIM_HOME);
}

void tsock_claim_over(struct tsock *s)
{
	answer(s, CLAIM_GONE);
}

bool tsock_held_elsewhere(const struct tsock *s)
{
	_Atomic uint64_t *word = word_of(s);
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);

	return word && claim_copies(atomic_load(word)) && held_since(c, s->born);
}

void tsock_forking(struct vfd *v)
{
	struct tsock *s = tsock_of(v);
	_Atomic uint64_t *word = word_of(s);

	if (!word)
		return;
	claim_copy_add(word);
	s->claim_gen = claim_gen(atomic_load(word));
}

/* --- claims */

/* The handshake is under way: the kernel can take it over when it is done. */
static bool is_connecting(struct tsock *s)
{
	struct stack *st = tsock_conn_lock(s);
	enum tcp_state state = TCPS_CLOSED;

	if (st) {
		state = tcp_conn_state(s->c);
		lock_drop(&st->lock);
	}
	return state == TCPS_SYN_SENT || state == TCPS_SYN_RECV;
}

void tsock_claims_look(void)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);
	struct tsock *s;

	/* The words first: claims are few, sockets may be many. */
	for (uint32_t id = 0; c && id < CLAIM_WORDS && (s = tsock_numbered(id)); id++) {
		if (claim_state(atomic_load_explicit(&c->words[id], memory_order_acquire)) != CLAIM_WANTED)
			continue;
		if (tsock_go_home(s, "a child process uses it") && !is_connecting(s))
			tsock_claim_over(s);
	}
}

static void claimed(int fd, uint32_t events, void *arg)
{
	char some[64];

	(void)events;
	(void)arg;
	/* What it says does not matter: the words do. */
	while (libc.recv(fd, some, sizeof(some), MSG_DONTWAIT) >= 0)
		;
	tsock_claims_look();
}

/* The socket by which children wake this process: without a file, under a name that the kernel chooses. 0 or negative errno. */
static int listen_for_claims(struct claims *c)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	int fd = libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err = 0;

	if (fd < 0)
		return -errno;
	c->addr_len = sizeof(c->addr);
	if (libc.bind(fd, (struct sockaddr *)&any, sizeof(any.sun_family)) ||
	    libc.getsockname(fd, (struct sockaddr *)&c->addr, &c->addr_len))
		err = -errno;
	if (!err)
		err = worker_fd_add(fd, EPOLLIN, claimed, NULL);
	if (err)
		libc.close(fd);
	else
		wake_fd = fd;
	return err;
}

/* A new one, whose claims are listened for. NULL and *err. */
static struct claims *claims_new(int *err)
{
	struct claims *c = mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (c == MAP_FAILED) {
		*err = -errno;
		return NULL;
	}
	c->owner = getpid();
	*err = listen_for_claims(c);
	if (!*err)
		return c;
	munmap(c, sizeof(*c));
	return NULL;
}

/* This process's, made when there are none; NULL: it cannot be done. */
static struct claims *claims_get(void)
{
	struct claims *c;
	int err = 0;

	lock_take(&make_lock);
	c = atomic_load(&mine);
	if (!c) {
		c = claims_new(&err);
		atomic_store_explicit(&mine, c, memory_order_release);
	}
	lock_drop(&make_lock);
	if (!c)
		log_warn("connections go to the kernel at fork(): %s", strerror(-err));
	return c;
}

/* --- fork() */

/* Nobody could claim it. */
static void beyond(struct tsock *s, void *arg)
{
	(void)arg;
	if (s->id >= CLAIM_WORDS)
		(void)tsock_go_home(s, "fork()");
}

bool tsock_fork_begin(struct tsock_fork *f)
{
	struct claim_holder *h = NULL;
	struct claims *c = NULL;

	f->num = 0;
	tsock_heirs_fork_begin(f);
	if (!tsock_running())
		return true;
	libc_internal++;
	c = claims_get();
	libc_internal--;
	if (c) {
		(void)held_since(c, 0); /* makes room */
		h = claim_hold(c);
		if (!h)
			claim_lost(c, atomic_load(&c->seq));
		tsock_each(beyond, NULL);
	}
	f->held[f->num++] = (struct tsock_fork_held){c, h};
	return c != NULL;
}

/* This process's connections as of now are the child's, too. */
static void note_child(struct claims *c, struct claim_holder *h, pid_t pid)
{
	uint32_t seq = atomic_fetch_add(&c->seq, 1); /* what is made from here on is not */

	if (!h) {
		claim_lost(c, seq);
		return;
	}
	atomic_store(&h->seq, seq);
	atomic_store(&h->pid, pid < 0 ? 0 : pid);
}

void tsock_fork_end(const struct tsock_fork *f, pid_t pid)
{
	const struct tsock_fork_held *last = f->num ? &f->held[f->num - 1] : NULL;

	if (last && last->claims && last->claims == atomic_load(&mine))
		note_child(last->claims, last->holder, pid);
	tsock_heirs_fork_end(f, pid);
}

void tsock_claims_forked(void)
{
	struct claims *c = atomic_load(&mine);

	atomic_store(&make_lock.owner, 0);
	if (wake_fd >= 0)
		libc.close(wake_fd);
	wake_fd = -1;
	/* The mapping stays: the heirs' words are there. */
	atomic_store(&mine, NULL);
	if (c)
		tsock_heirs_of(c, atomic_load(&c->seq));
}

struct claims *tsock_claims(void)
{
	return atomic_load(&mine);
}
