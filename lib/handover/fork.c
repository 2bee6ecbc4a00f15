/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fork(), the owner's side: its engine goes on serving the connections. One goes to the kernel
 * (to_kernel.c) when a child claims it, and when this process lets go of it while a child may still
 * have a copy. In doubt it goes: that is always right.
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

#include "handover/internal.h"
#include "handover/listener.h"
#include "runtime/runtime.h"
#include "handover/claim.h"

static struct claims *_Atomic mine; /* NULL: this process has not forked with connections */
static int wake_fd = -1; /* bound to mine->addr */
static struct lock make_lock;

/* --- holders */

bool claim_has_ended(int32_t pid)
{
	siginfo_t si = {.si_pid = 0};
	int err = errno;
	bool ended = kill(pid, 0) && errno == ESRCH;

	/*
	 * A child of ours that nobody has waited for yet; another's is taken for alive until it is.
	 */
	if (!ended && !libc_raw(SYS_waitid, P_PID, pid, (long)(uintptr_t)&si,
				WEXITED | WNOHANG | WNOWAIT, 0, 0))
		ended = si.si_pid == pid;
	errno = err;
	return ended;
}

/* Gives the entries of dead processes back. True: one that is left has what was made at born. */
static bool copied_since(struct claims *c, uint32_t born)
{
	uint32_t lost = atomic_load(&c->lost);
	bool held = lost && lost >= born;

	for (unsigned i = 0; i < CLAIM_HOLDERS; i++) {
		struct claim_holder *h = &c->holders[i];
		int32_t pid = atomic_load(&h->pid);

		if (!pid || (pid > 0 && claim_has_ended(pid) &&
			     atomic_compare_exchange_strong(&h->pid, &pid, 0)))
			continue;
		held = held || atomic_load(&h->seq) >= born;
	}
	return held;
}

bool claim_others_live(const struct claims *c)
{
	pid_t self = getpid();
	bool any = c->owner != self && !claim_has_ended(c->owner);

	for (unsigned i = 0; i < CLAIM_HOLDERS && !any; i++) {
		int32_t pid = atomic_load(&c->holders[i].pid);

		any = pid == CLAIM_PENDING || (pid && pid != self && !claim_has_ended(pid));
	}
	return any;
}

struct claim_holder *claim_hold(struct claims *c)
{
	for (unsigned i = 0; i < CLAIM_HOLDERS; i++) {
		struct claim_holder *h = &c->holders[i];
		int32_t free = 0;

		if (!atomic_load(&h->pid) &&
		    atomic_compare_exchange_strong(&h->pid, &free, CLAIM_PENDING)) {
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

static _Atomic uint64_t *word_of(const struct tcp_sock *s)
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

void tcp_sock_claim_new(struct tcp_sock *s)
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

/* Of the connection that s had when its word was this. */
static void answer(_Atomic uint64_t *word, uint64_t was, enum claim_state state)
{
	uint64_t w = was;

	while (claim_gen(w) == claim_gen(was) && claim_state(w) < CLAIM_IN_KERNEL) {
		if (!atomic_compare_exchange_weak(word, &w, (w & ~0xffull) | state))
			continue;
		if (claim_state(w) == CLAIM_WANTED)
			wake(word);
		return;
	}
}

uint64_t tcp_sock_claim_of(const struct tcp_sock *s)
{
	_Atomic uint64_t *word = word_of(s);

	return word ? atomic_load(word) : 0;
}

void tcp_sock_claim_in_kernel(struct tcp_sock *s, uint64_t claim)
{
	_Atomic uint64_t *word = word_of(s);

	if (word)
		answer(word, claim, CLAIM_IN_KERNEL);
}

void tcp_sock_claim_over(struct tcp_sock *s)
{
	_Atomic uint64_t *word = word_of(s);

	tcp_sock_listener_over(s);
	if (word)
		answer(word, atomic_load(word), CLAIM_GONE);
}

bool tcp_sock_has_copies(const struct tcp_sock *s)
{
	_Atomic uint64_t *word = word_of(s);
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);

	return word && claim_copies(atomic_load(word)) && copied_since(c, s->born);
}

void tcp_sock_forking(struct vfd *v)
{
	struct tcp_sock *s = tcp_sock_of(v);
	_Atomic uint64_t *word = word_of(s);

	if (!word)
		return;
	claim_copy_add(word);
	s->claim_gen = claim_gen(atomic_load(word));
}

/* --- claims */

static enum tcp_state state_of(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);
	enum tcp_state state = TCPS_CLOSED;

	if (st) {
		state = tcp_conn_state(s->c);
		lock_drop(&st->lock);
	}
	return state;
}

/* A SYN that waits for data to take along leaves without (TCP_FASTOPEN_CONNECT). */
static void begin_handshake(struct tcp_sock *s)
{
	struct stack *st = tcp_sock_conn_lock(s);

	if (!st)
		return;
	tcp_fast_open_go(s->c);
	tcp_sock_unlock_stack(st, tcp_sock_now_us());
}

/* The kernel did not take a child's connection. */
static void not_taken(struct tcp_sock *s)
{
	int fd = atomic_load_explicit(&s->v.os_fd, memory_order_relaxed), cancel;
	enum tcp_state state = state_of(s);

	if (state == TCPS_SYN_SENT)
		begin_handshake(s);
	/* The kernel can take it over when its handshake is done. */
	if (state == TCPS_SYN_SENT || state == TCPS_SYN_RECV)
		return;
	/*
	 * To the child the kernel socket is one whose connection has ended, not one that never had
	 * any. It says ENOTCONN and does it. Not when another thread has moved the connection there
	 * meanwhile, or closed the number.
	 */
	if (state == TCPS_CLOSED && tcp_sock_lock_live(s, fd, &cancel)) {
		if (tcp_sock_mode(s) == TCP_SOCK_CONN)
			(void)libc.shutdown(fd, SHUT_RDWR);
		tcp_sock_unlock(s, cancel);
	}
	tcp_sock_claim_over(s);
}

/* While the connection's receive callback runs the claim stands: the child asks again. */
static void answer_claim(struct tcp_sock *s)
{
	int err = tcp_sock_to_kernel(s, STATS_WHY(FORK));

	if (err && err != -EBUSY)
		not_taken(s);
}

void tcp_sock_claims_look(void)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);
	struct tcp_sock *s;
	uint64_t claim;

	/* The words first: claims are few, sockets may be many. */
	for (uint32_t id = 0; c && id < CLAIM_WORDS && (s = tcp_sock_numbered(id)); id++) {
		if (claim_state(atomic_load_explicit(&c->words[id], memory_order_acquire)) !=
		    CLAIM_WANTED)
			continue;
		claim = tcp_sock_claim_of(s);
		/* After the claim, which is of the listener then if this is one. */
		if (listener_listens(s)) {
			tcp_sock_listener_give(s, atomic_load(&c->takers[id]));
			tcp_sock_claim_in_kernel(s, claim);
			continue;
		}
		answer_claim(s);
	}
}

static void claimed(int fd, uint32_t events, void *arg)
{
	char some[64];

	(void)events;
	(void)arg;
	/* What it says does not matter: the words do. */
	while (raw.recv(fd, some, sizeof(some), MSG_DONTWAIT) >= 0)
		;
	tcp_sock_claims_look();
}

/*
 * The socket by which children wake this process: without a file, under a name that the kernel
 * chooses. 0 or negative errno.
 */
static int listen_for_claims(struct claims *c)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	int fd = OWN_FD(libc.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
	    err = 0;

	if (fd < 0)
		return -errno;
	c->addr_len = sizeof(c->addr);
	if (libc.bind(fd, (struct sockaddr *)&any, sizeof(any.sun_family)) ||
	    libc.getsockname(fd, (struct sockaddr *)&c->addr, &c->addr_len))
		err = -errno;
	if (!err)
		err = worker_fd_add(fd, EPOLLIN, claimed, NULL);
	if (err)
		own_fd_close(fd);
	else
		wake_fd = fd;
	return err;
}

/* A new one, whose claims are listened for. NULL and *err. */
static struct claims *claims_new(int *err)
{
	struct claims *c =
		mmap(NULL, sizeof(*c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

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

void tcp_sock_claims_end(void)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);
	struct tcp_sock *s;

	for (uint32_t id = 0; c && id < CLAIM_WORDS && (s = tcp_sock_numbered(id)); id++)
		answer(&c->words[id], atomic_load(&c->words[id]),
		       tcp_sock_mode(s) == TCP_SOCK_CONN ? CLAIM_GONE : CLAIM_IN_KERNEL);
	if (wake_fd < 0)
		return;
	/* Who asks later is refused. */
	worker_fd_del(wake_fd, NULL);
	own_fd_close(wake_fd);
	wake_fd = -1;
}

/* --- fork() */

/* Nobody could claim it. */
static void beyond(struct tcp_sock *s, void *arg)
{
	(void)arg;
	if (s->id >= CLAIM_WORDS)
		(void)tcp_sock_to_kernel(s, STATS_WHY(FORK));
}

bool handover_fork_begin(struct handover_fork *f)
{
	struct claim_holder *h = NULL;
	struct claims *c = NULL;

	f->num = 0;
	tcp_sock_inherited_fork_begin(f);
	if (!handover_running())
		return true;
	libc_internal_begin();
	c = claims_get();
	libc_internal_end();
	if (c) {
		(void)copied_since(c, 0); /* makes room */
		h = claim_hold(c);
		if (!h)
			claim_lost(c, atomic_load(&c->seq));
		tcp_sock_each(beyond, NULL);
	}
	f->claims[f->num++] = (struct handover_fork_claim){c, h};
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

void handover_fork_end(const struct handover_fork *f, pid_t pid)
{
	const struct handover_fork_claim *last = f->num ? &f->claims[f->num - 1] : NULL;

	if (last && last->claims && last->claims == atomic_load(&mine))
		note_child(last->claims, last->holder, pid);
	tcp_sock_inherited_fork_end(f, pid);
}

void tcp_sock_claims_forked(void)
{
	struct claims *c = atomic_load(&mine);

	atomic_store(&make_lock.owner, 0);
	if (wake_fd >= 0)
		own_fd_close(wake_fd);
	wake_fd = -1;
	/* The mapping stays: the words of inherited connections are there. */
	atomic_store(&mine, NULL);
	if (c)
		tcp_sock_inherit_from(c, atomic_load(&c->seq));
}

bool tcp_sock_own_claim(const struct tcp_sock *s, struct claim_ref *out)
{
	struct claims *c = atomic_load_explicit(&mine, memory_order_acquire);

	if (!c || s->id >= CLAIM_WORDS)
		return false;
	*out = (struct claim_ref){c, s->id, claim_gen(atomic_load(&c->words[s->id]))};
	return true;
}

struct claims *tcp_sock_claims(void)
{
	return atomic_load(&mine);
}
