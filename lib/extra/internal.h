/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The members of struct vma_api_t that have files of their own; results and errno as there. */
#ifndef EXTRA_INTERNAL_H
#define EXTRA_INTERNAL_H

#include <errno.h>

#include "extra/extra.h"
#include "fd/fd.h"
#include "runtime/runtime.h"
#include "socket/socket.h"
#include "socket/tcp/sock.h"
#include "socket/udp/sock.h"

static inline int extra_fail(int err)
{
	errno = err;
	return -1;
}

/* What a function that gives 0 or negative errno says to the program. */
static inline int extra_result(int err)
{
	return err < 0 ? extra_fail(-err) : err;
}

/* The socket that fd names; NULL: none that is offloaded. */
static inline struct vfd *extra_socket(int fd)
{
	struct vfd *v = vfd_get(fd);

	return v && (v->kind == VFD_UDP || v->kind == VFD_TCP) ? v : NULL;
}

/* rings.c */
#define EXTRA_HEADER_MAX 64
int extra_rings_num(int fd);
int extra_rings_fds(int fd, int *fds, int max);
int extra_tx_ring_fd(int fd, struct sockaddr *to, socklen_t tolen);
int extra_network_header(int fd, void *ptr, uint16_t *len);
/* The stacks that the socket fd receives by, attached if need be; at most max. Negative errno. */
int extra_stacks(int fd, struct stack *sts[], unsigned max);

/* xtreme.c */
int extra_xtreme_poll(int fd, struct vma_completion_t *completions, unsigned n, int flags);
int extra_xtreme_free(struct vma_packet_desc_t *packets, int n);
int extra_xtreme_ref(struct vma_buff_t *buff);
int extra_xtreme_unref(struct vma_buff_t *buff);

/* card.c */
int extra_descriptors(int fd, struct vma_mlx_hw_device_data *data);
int extra_register_memory(int fd, void *addr, size_t len, uint32_t *key);
int extra_deregister_memory(int fd, void *addr, size_t len);
int extra_modify_ring(struct vma_modify_ring_attr *attr);

/* private_options.c */
int extra_add_ring_profile(struct vma_ring_type_attr *profile, int *key);

/* user_memory.c */
int extra_ioctl(void *cmsg_hdr, size_t cmsg_len);

/* offload.c */
int extra_thread_offload(int offload, pthread_t tid);
int extra_add_conf_rule(const char *line);

#endif
