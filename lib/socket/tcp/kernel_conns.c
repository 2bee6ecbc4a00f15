/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Connections that the kernel has made have no object here, but vma_stats shows them, and why, for
 * as long as their number names them. The internal thread looks.
 */
#include <netinet/tcp.h>
#include <string.h>

#include "socket/socket.h"
#include "socket/tcp/internal.h"

/* Further ones are not shown: those that are offloaded need blocks, too. */
#define CONNS_MAX 32

static struct lock lock;
static struct vma_stats_socket *conns[CONNS_MAX]; /* NULL: free. lock */
static _Atomic unsigned num_conns; /* written with the lock */

/* Its number is open and names the same file. */
static bool is_there(const struct vma_stats_socket *b)
{
	return sock_inode(b->fd) == b->inode;
}

static bool enter(struct vma_stats_socket *b)
{
	bool room = false;

	lock_take(&lock);
	for (unsigned i = 0; i < CONNS_MAX && !room; i++) {
		room = !conns[i];
		if (room)
			conns[i] = b;
	}
	if (room)
		atomic_fetch_add_explicit(&num_conns, 1, memory_order_relaxed);
	lock_drop(&lock);
	return room;
}

/* Takes out one that `over` says is; NULL: none is. The caller's to put. */
static struct vma_stats_socket *take(bool (*over)(const struct vma_stats_socket *b, int fd), int fd)
{
	struct vma_stats_socket *b = NULL;

	lock_take(&lock);
	for (unsigned i = 0; i < CONNS_MAX && !b; i++) {
		if (!conns[i] || !over(conns[i], fd))
			continue;
		b = conns[i];
		conns[i] = NULL;
		atomic_fetch_sub_explicit(&num_conns, 1, memory_order_relaxed);
	}
	lock_drop(&lock);
	return b;
}

static bool has_number(const struct vma_stats_socket *b, int fd)
{
	return b->fd == fd;
}

static bool is_over(const struct vma_stats_socket *b, int fd)
{
	(void)fd;
	return !is_there(b);
}

void tcp_sock_kernel_conn_add(struct vma_stats_socket *b)
{
	uint64_t inode = b->why_ever ? sock_inode(b->fd) : 0;

	if (!inode) {
		stats_socket_put(b);
		return;
	}
	stats_set(&b->inode, inode);
	if (!enter(b))
		stats_socket_put(b);
}

void tcp_sock_kernel_conn_forget(int fd)
{
	struct vma_stats_socket *b;

	if (!atomic_load_explicit(&num_conns, memory_order_relaxed))
		return;
	b = take(has_number, fd);
	if (b)
		stats_socket_put(b);
}

/* What the kernel says of it. */
static void show(struct vma_stats_socket *b)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);
	uint8_t state = TCPS_CLOSED;
	struct in6_addr addr;
	uint32_t scope;

	if (!libc.getsockname(b->fd, (struct sockaddr *)&ss, &len) &&
	    sock_addr_get((struct sockaddr *)&ss, len, &addr, &b->local_port, &scope))
		memcpy(b->local.byte, &addr, 16);
	len = sizeof(ss);
	if (!libc.getpeername(b->fd, (struct sockaddr *)&ss, &len) &&
	    sock_addr_get((struct sockaddr *)&ss, len, &addr, &b->remote_port, &scope))
		memcpy(b->remote.byte, &addr, 16);
	len = sizeof(state);
	(void)libc.getsockopt(b->fd, IPPROTO_TCP, TCP_INFO, &state, &len);
	tcp_sock_show_state_in(b, state);
}

void tcp_sock_kernel_conn_look(void)
{
	struct vma_stats_socket *b;

	if (!atomic_load_explicit(&num_conns, memory_order_relaxed))
		return;
	while ((b = take(is_over, 0)))
		stats_socket_put(b);
	lock_take(&lock);
	for (unsigned i = 0; i < CONNS_MAX; i++) {
		if (conns[i])
			show(conns[i]);
	}
	lock_drop(&lock);
}

void tcp_sock_kernel_conn_forked(void)
{
	atomic_store(&lock.owner, 0);
	memset(conns, 0, sizeof(conns));
	num_conns = 0;
}
