/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Blocks of local ports for connect(), where a steering rule for each connection would be dear (a
 * card takes a millisecond or two): one rule takes all ports of an aligned block of one local
 * address, and the engine tells the connections apart.
 *
 * What a card has taken the kernel does not get any more. So while the rule stands nobody else may
 * have one of the ports: a kernel socket of ours is bound to each. They wait in the queue of a
 * local socket, where they need no number. The kernel socket of a connection is bound beside them
 * in TCP_REPAIR mode (CAP_NET_ADMIN). Each port is given once, then the block waits for its end: a
 * peer that has the last connection in TIME_WAIT meets another port, and nobody learns many ports
 * from one.
 */
#include <errno.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/net.h"
#include "runtime/runtime.h"
#include "socket/socket.h"
#include "socket/tcp/internal.h"
#include "socket/tcp/option/rows.h"

#define BLOCKS_MAX 64u
#define BITS_MAX 6u /* left has a bit for each port */
#define BITS_MIN 4u
#define TRIES 4u /* blocks of each size */
#define BATCH 16u /* numbers that are in use for a moment while ports are taken */
#define IDLE_SECONDS 10u
#define AGAIN_US 1000000u /* after none could be had */

struct block {
	struct stack *_Atomic st; /* NULL: free. Its lock is for the rest, and to make it NULL */
	struct vma_flow_key key;
	uint64_t left; /* ports that were not given yet */
	ino_t inode; /* of fd: who closes the numbers of others makes it another file's */
	int fd; /* whoever closes it frees the ports */
	uint32_t users, idle; /* idle: seconds without any */
	bool stands; /* its rule is there; false: the stack's ring is still to come */
	bool shared; /* the kernel has a connection of one of the ports */
};

static struct block blocks[BLOCKS_MAX];
static _Atomic uint64_t not_before_us; /* us: none could be had */
static _Atomic bool not_permitted, deferred;

static int get(int fd, int opt)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return libc.getsockopt(fd, SOL_SOCKET, opt, &v, &len) ? 0 : v;
}

static bool has(const struct block *b, const struct tcp_tuple *t)
{
	return t->lport >> b->key.port_bits == b->key.local_port >> b->key.port_bits &&
	       !memcmp(&b->key.local, &t->local, 16);
}

/* st->lock is held. */
static struct block *find(struct stack *st, const struct tcp_tuple *t)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (atomic_load_explicit(&blocks[i].st, memory_order_relaxed) == st &&
		    has(&blocks[i], t))
			return &blocks[i];
	}
	return NULL;
}

/* --- kernel sockets that keep the ports */

/*
 * Puts sockets bound to the n ports from `port` on, n <= BATCH, into the queue behind fd. 0 or
 * negative errno.
 */
static int keep_some(int fd, const struct tcp_tuple *t, uint32_t ifindex, uint16_t port, unsigned n)
{
	char room[CMSG_SPACE(BATCH * sizeof(int))] = {0}, byte = 0;
	struct iovec iov = {&byte, 1};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = room,
			   .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	struct sockaddr_storage ss;
	int fds[BATCH] = {0}, err = 0;
	unsigned made = 0;
	socklen_t len;

	while (!err && made < n) {
		fds[made] = OWN_FD(libc.socket(t->family, SOCK_STREAM | SOCK_CLOEXEC, 0));
		if (fds[made] < 0) {
			err = -errno;
			break;
		}
		len = sock_addr_put(t->family, &t->local, (uint16_t)(port + made), ifindex, &ss);
		if (libc.bind(fds[made++], (struct sockaddr *)&ss, len))
			err = -errno;
	}
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(n * sizeof(int));
	if (!err) {
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
		if (raw.sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
			err = -errno;
	}
	while (made)
		own_fd_close(fds[--made]);
	return err;
}

/*
 * Nobody has one of the 2^bits ports from `port` on, nor gets one until the returned number is
 * closed; or negative errno.
 */
static int keep(const struct tcp_tuple *t, uint32_t ifindex, uint16_t port, unsigned bits)
{
	int pair[2], err = 0;

	if (!OWN_FD_PAIR(libc.socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), pair))
		return -errno;
	for (unsigned i = 0; !err && i < 1u << bits; i += BATCH)
		err = keep_some(pair[0], t, ifindex, (uint16_t)(port + i), BATCH);
	own_fd_close(pair[0]);
	if (err)
		own_fd_close(pair[1]);
	return err ? err : pair[1];
}

/* --- blocks, their stack locked */

/* The rule of b is there, or can be had when the ring has come. */
static bool stands(struct block *b, struct stack *st)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid(), .fd = (uint32_t)b->fd};

	if (stack_ring_comes(st))
		return true;
	if (!b->stands)
		b->stands = st->ring->caps.port_blocks &&
			    !st->ring->ops->flow_add(st->ring, &b->key, &info);
	return b->stands;
}

static void release(struct block *b, struct stack *st)
{
	if (b->stands && atomic_load_explicit(&st->open, memory_order_relaxed))
		st->ring->ops->flow_del(st->ring, &b->key);
	/* The rule first. */
	if (sock_inode(b->fd) == b->inode)
		own_fd_close(b->fd);
	atomic_store_explicit(&b->st, NULL, memory_order_release);
}

/* What lives on the block's rule gets a rule of its own. */
static void own_rule(struct tcp_sock *s, void *arg)
{
	struct vma_flow_info info = {.pid = (uint32_t)getpid()};
	const struct block *b = arg;
	struct stack *st = atomic_load_explicit(&b->st, memory_order_relaxed);
	struct vma_flow_key key;
	int err;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) != st || !s->in_engine ||
	    !s->on_block || !has(b, &s->tuple))
		return;
	tcp_sock_key(&s->tuple, true, &key);
	info.fd = (uint32_t)atomic_load_explicit(&s->v.os_fd, memory_order_relaxed);
	err = st->ring->ops->flow_add(st->ring, &key, &info);
	s->has_own_rule = !err;
	s->on_block = false;
	if (err)
		log_warn("TCP port %u: a connection loses its steering rule with its block of "
			 "ports: %s",
			 s->tuple.lport, strerror(-err));
}

/* The block's rule would take from the kernel what is the kernel's. */
static void split(struct block *b, struct stack *st)
{
	if (atomic_load_explicit(&st->open, memory_order_relaxed) && b->users)
		tcp_sock_each(own_rule, b);
	release(b, st);
}

static struct block *block_new(struct stack *st)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		struct stack *none = NULL;

		if (atomic_compare_exchange_strong(&blocks[i].st, &none, st))
			return &blocks[i];
	}
	return NULL;
}

/* Takes fd. True: the block stands. */
static bool add(struct stack *st, const struct tcp_tuple *t, uint16_t port, unsigned bits, int fd)
{
	struct block *b;
	bool ok = false;

	lock_take(&st->lock);
	b = atomic_load_explicit(&st->open, memory_order_relaxed) ? block_new(st) : NULL;
	if (b) {
		tcp_sock_key(t, false, &b->key);
		b->key.local_port = port;
		b->key.port_bits = (uint8_t)bits;
		b->left = UINT64_MAX >> (64 - (1u << bits));
		b->fd = fd;
		b->inode = sock_inode(fd);
		b->users = b->idle = 0;
		b->stands = b->shared = false;
		ok = stands(b, st);
		if (!ok)
			atomic_store_explicit(&b->st, NULL, memory_order_release);
	}
	lock_drop(&st->lock);
	if (!ok)
		own_fd_close(fd);
	return ok;
}

/*
 * The interface forwards: the kernel may translate others' addresses to ours (MASQUERADE), with
 * ports of theirs that no socket keeps, and what comes back to these is theirs.
 */
static bool forwards(int ifindex, bool v4)
{
	struct net_link link;
	char path[80], text[4];

	if (net_link_get(ifindex, &link))
		return true;
	if (v4)
		snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/forwarding", link.name);
	else
		snprintf(path, sizeof(path), "/proc/sys/net/ipv6/conf/all/forwarding");
	text_file_read(path, text, sizeof(text));
	return text[0] != '0' && text[0];
}

/* Where many ports are in use a small block is found where a large one is not. */
static bool make(struct stack *st, const struct tcp_tuple *t)
{
	bool may;

	if (tcp_sock_now_us() < atomic_load_explicit(&not_before_us, memory_order_relaxed))
		return false;
	may = !forwards(st->ifindex, t->family == AF_INET);
	for (unsigned n = 0; may && n < TRIES * (BITS_MAX - BITS_MIN + 1); n++) {
		unsigned bits = BITS_MAX - n / TRIES;
		uint16_t port = tcp_sock_ports_block(bits);
		int fd = port ? keep(t, (uint32_t)st->ifindex, port, bits) : -EADDRINUSE;

		if (fd >= 0 && add(st, t, port, bits, fd))
			return true;
		if (fd != -EADDRINUSE)
			break;
	}
	atomic_store_explicit(&not_before_us, tcp_sock_now_us() + AGAIN_US, memory_order_relaxed);
	return false;
}

/* One of the ports of b that are left for t, whose lport is filled in. */
static bool give_of(struct block *b, struct stack *st, struct tcp_tuple *t)
{
	uint64_t random = tcp_sock_ports_random();

	while (b->left && !b->shared) {
		uint64_t bits = b->left;

		for (unsigned n = (unsigned)(random % (unsigned)__builtin_popcountll(bits)); n; n--)
			bits &= bits - 1;
		b->left &= ~(bits & -bits);
		t->lport = (uint16_t)(b->key.local_port + __builtin_ctzll(bits));
		if (st->tcp && tcp_tuple_used(st->tcp->ts, t))
			continue;
		b->users++;
		b->idle = 0;
		return true;
	}
	return false;
}

enum given { GIVEN, NONE_LEFT, EXACT };

static enum given give(struct stack *st, struct tcp_tuple *t)
{
	enum given ret = NONE_LEFT;

	lock_take(&st->lock);
	if (!atomic_load_explicit(&st->open, memory_order_relaxed) || !st->ring->caps.port_blocks)
		ret = EXACT;
	for (unsigned i = 0; ret == NONE_LEFT && i < BLOCKS_MAX; i++) {
		struct block *b = &blocks[i];

		if (atomic_load_explicit(&b->st, memory_order_relaxed) == st &&
		    !memcmp(&b->key.local, &t->local, 16) && give_of(b, st, t))
			ret = GIVEN;
	}
	lock_drop(&st->lock);
	return ret;
}

/* --- what connections ask */

/*
 * fd may be bound beside the socket that keeps the port. Sockets with SO_REUSEPORT could come to
 * that then, not with this option.
 */
static bool repair(int fd)
{
	int err = get(fd, SO_REUSEPORT) ? -EOPNOTSUPP
					: opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON);

	if (err == -EPERM)
		atomic_store_explicit(&not_permitted, true, memory_order_relaxed);
	return !err;
}

static bool bind_beside(const struct tcp_sock *s, int fd, const struct stack *st)
{
	struct sockaddr_storage ss;
	socklen_t len = sock_addr_put(s->domain, &s->tuple.local, s->tuple.lport,
				      (uint32_t)st->ifindex, &ss);

	return !libc.bind(fd, (struct sockaddr *)&ss, len);
}

bool tcp_sock_block_take(struct tcp_sock *s, int fd, struct stack *st)
{
	bool may = !atomic_load_explicit(&not_permitted, memory_order_relaxed);
	enum given given = may ? give(st, &s->tuple) : EXACT;
	int reuse = given == EXACT ? 0 : get(fd, SO_REUSEADDR);

	may = given != EXACT && repair(fd);
	if (may && given == NONE_LEFT && make(st, &s->tuple))
		given = give(st, &s->tuple);
	s->on_block = given == GIVEN;
	if (s->on_block && !(may && bind_beside(s, fd, st))) {
		lock_take(&st->lock);
		tcp_sock_block_put(s, st);
		lock_drop(&st->lock);
	}
	if (may) {
		(void)opt_set_int(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF);
		if (reuse) /* repair mode has cleared it */
			(void)opt_set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	}
	if (!s->on_block)
		s->tuple.lport = 0;
	return s->on_block;
}

bool tcp_sock_block_stands(const struct tcp_sock *s, struct stack *st)
{
	struct block *b = find(st, &s->tuple);

	return b && stands(b, st);
}

/* fn of tcp_sock_each(): s, whose SYN is held, is on the block no more. */
static void leave(struct tcp_sock *s, void *arg)
{
	const struct block *b = arg;

	if (atomic_load_explicit(&s->st, memory_order_relaxed) ==
		    atomic_load_explicit(&b->st, memory_order_relaxed) &&
	    s->in_engine && s->on_block && has(b, &s->tuple))
		s->on_block = false;
}

void tcp_sock_blocks_came(struct stack *st)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		struct block *b = &blocks[i];

		if (atomic_load_explicit(&b->st, memory_order_relaxed) != st || stands(b, st))
			continue;
		tcp_sock_each(leave, b);
		release(b, st);
	}
}

void tcp_sock_block_put(struct tcp_sock *s, struct stack *st)
{
	struct block *b = find(st, &s->tuple);

	s->on_block = false;
	if (b && b->users && !--b->users && (!b->left || b->shared))
		release(b, st);
}

void tcp_sock_block_to_kernel(struct tcp_sock *s, struct stack *st)
{
	struct block *b = find(st, &s->tuple);

	s->on_block = false;
	if (!b)
		return;
	b->users--;
	b->shared = true;
	if (!b->users || !atomic_load_explicit(&deferred, memory_order_relaxed))
		split(b, st);
}

/* Splits the blocks that have t's port, or all that the kernel has a part of. */
static void split_those(const struct tcp_tuple *t)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		struct stack *st = atomic_load_explicit(&blocks[i].st, memory_order_acquire);

		if (!st)
			continue;
		lock_take(&st->lock);
		if (atomic_load_explicit(&blocks[i].st, memory_order_relaxed) == st &&
		    (t ? has(&blocks[i], t) : blocks[i].shared))
			split(&blocks[i], st);
		lock_drop(&st->lock);
	}
}

void tcp_sock_block_lost(const struct tcp_tuple *t)
{
	split_those(t);
}

void tcp_sock_blocks_defer(bool defer)
{
	atomic_store_explicit(&deferred, defer, memory_order_relaxed);
	if (!defer)
		split_those(NULL);
}

bool tcp_sock_blocks_deferred(void)
{
	return atomic_load_explicit(&deferred, memory_order_relaxed);
}

/* st->lock is held. */
static void tick(struct block *b, struct stack *st)
{
	if (sock_inode(b->fd) != b->inode)
		split(b, st); /* the ports are anybody's */
	else if (!b->users && ++b->idle >= IDLE_SECONDS)
		release(b, st);
}

void tcp_sock_blocks_tick(void)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		struct stack *st = atomic_load_explicit(&blocks[i].st, memory_order_acquire);

		if (!st)
			continue;
		lock_take(&st->lock);
		if (atomic_load_explicit(&blocks[i].st, memory_order_relaxed) == st)
			tick(&blocks[i], st);
		lock_drop(&st->lock);
	}
}

void tcp_sock_blocks_gone(struct stack *st)
{
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (atomic_load_explicit(&blocks[i].st, memory_order_relaxed) == st)
			release(&blocks[i], st);
	}
}

void tcp_sock_blocks_forked(void)
{
	/*
	 * The rules are the parent's, and so are the ports: our copies would keep them when it
	 * gives them back.
	 */
	for (unsigned i = 0; i < BLOCKS_MAX; i++) {
		if (atomic_load_explicit(&blocks[i].st, memory_order_relaxed) &&
		    sock_inode(blocks[i].fd) == blocks[i].inode)
			own_fd_close(blocks[i].fd);
		atomic_store_explicit(&blocks[i].st, NULL, memory_order_relaxed);
	}
	atomic_store_explicit(&deferred, false, memory_order_relaxed);
}
