/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* SocketXtreme: one call polls a ring and tells what has come for all sockets that it serves. */
#include <limits.h>

#include "config/config.h"
#include "extra/internal.h"
#include "stack/stack.h"

/* As lock_drop(); what telling has made TCP say leaves. */
static void told_unlock(struct stack *st)
{
	if (st->tcp)
		tcp_sock_unlock_stack(st, tcp_sock_now_us());
	else
		lock_drop(&st->lock);
}

/* One look at an open ring, which is locked: what waits to be told, else what the ring has. */
static unsigned look(struct stack *st, struct vma_completion_t *to, unsigned max,
		     struct stack_completions *told)
{
	unsigned n = stack_tell(st, to, max, told);

	if (n || told->first)
		return n;
	stack_poll_called(st);
	return stack_tell(st, to, max, told);
}

/* At most max completions of st's ring; -EBADFD: it is closed. */
static int tell(struct stack *st, struct vma_completion_t *to, unsigned max)
{
	struct stack_completions told;
	unsigned n = 0, got;

	do {
		lock_take(&st->lock);
		if (!atomic_load_explicit(&st->open, memory_order_relaxed)) {
			lock_drop(&st->lock);
			return n ? (int)n : -EBADFD;
		}
		got = look(st, to + n, max - n, &told);
		if (got || told.first)
			told_unlock(st);
		else
			lock_drop(&st->lock);
		n += got;
	} while (told.first && told.first(told.object, told.gen) && n < max);
	return (int)n;
}

/* The same of all rings that the socket fd receives by. */
static int tell_socket(int fd, struct vma_completion_t *to, unsigned max)
{
	struct stack *sts[UDP_ATT_MAX];
	int n = extra_stacks(fd, sts, UDP_ATT_MAX), told, sum = 0;

	if (n < 0)
		return -EBADFD;
	for (int i = 0; i < n && (unsigned)sum < max; i++) {
		told = tell(sts[i], to + sum, max - (unsigned)sum);
		sum += told > 0 ? told : 0;
	}
	return sum;
}

int extra_xtreme_poll(int fd, struct vma_completion_t *completions, unsigned n, int flags)
{
	struct stack *st;
	int told;

	(void)flags; /* none is known */
	if (!params.socketxtreme)
		return extra_fail(EOPNOTSUPP);
	if (!completions || !n)
		return extra_fail(EINVAL);
	if (n > INT_MAX)
		n = INT_MAX;
	stack_round_end();
	st = stack_of_ring_fd(fd);
	told = st ? tell(st, completions, n) : tell_socket(fd, completions, n);
	if (told > 0)
		stack_round_begin((unsigned)told);
	return extra_result(told);
}

int extra_xtreme_ref(struct vma_buff_t *buff)
{
	if (!params.socketxtreme)
		return extra_fail(EOPNOTSUPP);
	return extra_result(stack_lent_ref(buff));
}

int extra_xtreme_unref(struct vma_buff_t *buff)
{
	if (!params.socketxtreme)
		return extra_fail(EOPNOTSUPP);
	return extra_result(stack_lent_unref(buff));
}

/* A list, as poll has given it or the program has joined it: each is read before it may go. */
static int free_list(const struct vma_packet_desc_t *p)
{
	const struct vma_buff_t *b = p->buff_lst, *next;
	int refs;

	for (; b; b = next) {
		refs = stack_lent_next(b, &next);
		if (refs < 0)
			return refs;
	}
	return 0;
}

int extra_xtreme_free(struct vma_packet_desc_t *packets, int n)
{
	int err = 0;

	if (!params.socketxtreme)
		return extra_fail(EOPNOTSUPP);
	if (!packets)
		return extra_fail(EINVAL);
	for (int i = 0; i < n; i++) {
		int e = free_list(&packets[i]);

		err = err ? err : e;
	}
	return extra_result(err);
}
