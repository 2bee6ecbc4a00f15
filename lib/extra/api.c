/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <string.h>

#include "config/config.h"
#include "extra/internal.h"
#include "stack/stack.h"
#include "stats/stats.h"

static int register_recv_callback(int fd, vma_recv_callback_t fn, void *context)
{
	struct vfd *v = extra_socket(fd);

	/* Its packets are told by completions. */
	if (params.socketxtreme)
		return extra_fail(EOPNOTSUPP);
	if (!v)
		return extra_fail(EINVAL);
	return extra_result(v->kind == VFD_UDP ? udp_set_callback(v, fd, fn, context)
					       : tcp_sock_set_callback(v, fd, fn, context));
}

static int recvfrom_zcopy(int fd, void *buf, size_t len, int *flags, struct sockaddr *from,
			  socklen_t *fromlen)
{
	struct zcopy z = {.buf = buf, .len = len, .flags = flags, .from = from, .fromlen = fromlen};
	struct vfd *v = extra_socket(fd);

	if (!flags || (!buf && len) || (from && !fromlen))
		return extra_fail(EFAULT);
	if (!v)
		return extra_fail(EINVAL);
	return (int)(v->kind == VFD_UDP ? udp_recv_zcopy(v, fd, &z)
					: tcp_sock_recv_zcopy(v, fd, &z));
}

/* All are tried; the first that is refused says why. */
static int free_packets(int fd, struct vma_packet_t *pkts, size_t count)
{
	struct vfd *v = extra_socket(fd);
	int err = 0;

	if (!pkts)
		return extra_fail(EINVAL);
	for (size_t i = 0; i < count; i++) {
		int e = stack_held_free(pkts[i].packet_id, v);

		if (e == -ENOENT && !v)
			e = -EINVAL;
		if (!err)
			err = e;
	}
	return extra_result(err);
}

/* Level as VMA_TRACELEVEL's. */
static int dump_fd_stats(int fd, int level)
{
	if (level < LOG_NONE || level > LOG_ALL)
		return extra_fail(EINVAL);
	if (fd && !extra_socket(fd))
		return extra_fail(EINVAL);
	tcp_sock_figures_look();
	stats_sockets_log(fd, level);
	return 0;
}

static struct vma_api_t table = {
	.register_recv_callback = register_recv_callback,
	.recvfrom_zcopy = recvfrom_zcopy,
	.free_packets = free_packets,
	.add_conf_rule = extra_add_conf_rule,
	.thread_offload = extra_thread_offload,
	.socketxtreme_poll = extra_xtreme_poll,
	.get_socket_rings_num = extra_rings_num,
	.get_socket_rings_fds = extra_rings_fds,
	.get_socket_tx_ring_fd = extra_tx_ring_fd,
	.socketxtreme_free_vma_packets = extra_xtreme_free,
	.socketxtreme_ref_vma_buff = extra_xtreme_ref,
	.socketxtreme_free_vma_buff = extra_xtreme_unref,
	.dump_fd_stats = dump_fd_stats,
	.vma_add_ring_profile = extra_add_ring_profile,
	.get_socket_network_header = extra_network_header,
	.get_ring_direct_descriptors = extra_descriptors,
	.register_memory_on_ring = extra_register_memory,
	.deregister_memory_on_ring = extra_deregister_memory,
	.vma_modify_ring = extra_modify_ring,
	.vma_extra_supported_mask =
		VMA_EXTRA_API_REGISTER_RECV_CALLBACK | VMA_EXTRA_API_RECVFROM_ZCOPY |
		VMA_EXTRA_API_FREE_PACKETS | VMA_EXTRA_API_ADD_CONF_RULE |
		VMA_EXTRA_API_THREAD_OFFLOAD | VMA_EXTRA_API_DUMP_FD_STATS |
		VMA_EXTRA_API_SOCKETXTREME_POLL | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS |
		VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF | VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF |
		VMA_EXTRA_API_GET_SOCKET_RINGS_NUM | VMA_EXTRA_API_GET_SOCKET_RINGS_FDS |
		VMA_EXTRA_API_GET_SOCKET_TX_RING_FD | VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER |
		VMA_EXTRA_API_ADD_RING_PROFILE | VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS |
		VMA_EXTRA_API_REGISTER_MEMORY_ON_RING | VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING |
		VMA_EXTRA_API_MODIFY_RING | VMA_EXTRA_API_IOCTL,
	.ioctl = extra_ioctl,
};

int extra_get_api(void *val, socklen_t *len)
{
	struct vma_api_t *api = &table;

	if (!val || !len)
		return extra_fail(EFAULT);
	if (*len < sizeof(api))
		return extra_fail(EINVAL);
	memcpy(val, &api, sizeof(api));
	*len = sizeof(api);
	return 0;
}
