/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The Extra API: what a program can ask of libvma.so beyond the calls of libc. Names, layout and
 * numbers are those that programs for libvma 9.8 were compiled with; vma_extra(3) says what each
 * call does here, in which units, and with which errors.
 *
 * vma_get_api() gives the table of functions, NULL when the library is not loaded. Look at
 * vma_extra_supported_mask before you use a member.
 */
#ifndef VMA_EXTRA_H
#define VMA_EXTRA_H

/* No more than these: sockperf includes this header where sys/uio.h would break it. */
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>

/* Flags of recvfrom_zcopy(): in, an error rather than a copy; out, no copy was made. */
#define MSG_VMA_ZCOPY_FORCE 0x01000000
#define MSG_VMA_ZCOPY 0x00040000

/* Options of level SOL_SOCKET. */
#define SO_VMA_GET_API 2800 /* any fd, -1 too: a struct vma_api_t * */
#define SO_VMA_USER_DATA 2801 /* void *: what completions of the socket carry */
#define SO_VMA_RING_ALLOC_LOGIC 2810 /* struct vma_ring_alloc_logic_attr */
#define SO_VMA_RING_USER_MEMORY 2811 /* struct iovec */
#define SO_VMA_FLOW_TAG 2820 /* uint32_t */
#define SO_VMA_SHUTDOWN_RX 2821

/* A flag of send() and its like: everything is done but that something leaves. */
#define VMA_SND_FLAGS_DUMMY MSG_SYN

/* ioctl() of the table, before the first socket: cmsg_type at level SOL_SOCKET, and the data of it.
 */
enum { CMSG_VMA_IOCTL_USER_ALLOC = 2900 };

enum { VMA_IOCTL_USER_ALLOC_FLAG_TX = (1 << 0), VMA_IOCTL_USER_ALLOC_FLAG_RX = (1 << 1) };

struct __attribute__((packed)) vma_cmsg_ioctl_user_alloc_t {
	uint8_t flags; /* VMA_IOCTL_USER_ALLOC_FLAG_*: which pools; here each stands for both */
	void *(*memalloc)(size_t);
	void (*memfree)(void *);
};

/* --- the receive callback */

typedef enum {
	VMA_PACKET_DROP, /* nobody is to have it */
	VMA_PACKET_RECV, /* it is queued; recv() and its like give it */
	VMA_PACKET_HOLD /* the program keeps it until free_packets() */
} vma_recv_callback_retval_t;

/* What is known of a packet. Look at struct_sz before you read beyond what you know. */
struct __attribute__((packed)) vma_info_t {
	size_t struct_sz;
	void *packet_id; /* for free_packets() after VMA_PACKET_HOLD; NULL: it cannot be held */
	struct sockaddr_in *src;
	struct sockaddr_in *dst;
	size_t payload_sz; /* bytes */
	uint32_t socket_ready_queue_pkt_count; /* what waits to be read without this one */
	uint32_t socket_ready_queue_byte_count;
	struct timespec hw_timestamp; /* 0: not known */
	struct timespec sw_timestamp; /* CLOCK_REALTIME; 0: not known */
};

/* iov and vma_info are there during the call only; what iov points to is until it is freed. */
typedef vma_recv_callback_retval_t (*vma_recv_callback_t)(int fd, size_t sz_iov, struct iovec iov[],
							  struct vma_info_t *vma_info,
							  void *context);

/* --- receiving without a copy */

struct __attribute__((packed)) vma_packet_t {
	void *packet_id;
	size_t sz_iov;
	struct iovec iov[];
};

struct __attribute__((packed)) vma_packets_t {
	size_t n_packet_num;
	struct vma_packet_t pkts[];
};

/* --- names of libvma 6.6, for programs that are compiled anew: the layout is that of 9.8 */

typedef vma_recv_callback_retval_t vma_rcv_callback_retval_t;
typedef vma_recv_callback_t vma_rcv_callback_t;

/* What recvfrom_zcopy() leaves, as 6.6 saw it: the one packet of a struct vma_packets_t. */
typedef struct vma_datagram_t {
	size_t n_packet_num; /* 1 */
	void *datagram_id;
	size_t sz_iov;
	struct iovec iov[];
} vma_datagram_t;

/* Fills pkts with what free_packets() is to have of each of the ids; returns pkts. */
static inline struct vma_packet_t *vma_packets_of_datagrams(void *pkts, void *const *ids,
							    size_t count)
{
	char *at = (char *)pkts;

	for (; count; count--, at += sizeof(struct vma_packet_t))
		((struct vma_packet_t *)at)->packet_id = *ids++;
	return (struct vma_packet_t *)pkts;
}

/*
 * api->free_datagrams(s, ids, count): frees what stands in an array of ids (void **). Takes 16
 * bytes of the stack for each, and looks at its arguments more than once. A program that has a
 * function of this name says #undef free_datagrams.
 */
#define free_datagrams(s, ids, count)                                                              \
	free_packets(s,                                                                            \
		     vma_packets_of_datagrams(                                                     \
			     __builtin_alloca((count) * sizeof(struct vma_packet_t)), ids, count), \
		     count)

/* --- SocketXtreme */

typedef enum {
	VMA_SOCKETXTREME_PACKET = (1ULL << 32),
	VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED = (1ULL << 33)
} vma_socketxtreme_events_t;

struct vma_buff_t {
	struct vma_buff_t *next; /* NULL: the last one */
	void *payload;
	uint16_t len; /* bytes */
};

struct vma_packet_desc_t {
	size_t num_bufs;
	uint16_t total_len; /* bytes */
	struct vma_buff_t *buff_lst;
	struct timespec hw_timestamp; /* 0: not known */
};

struct vma_completion_t {
	struct vma_packet_desc_t packet; /* with VMA_SOCKETXTREME_PACKET */
	uint64_t events; /* vma_socketxtreme_events_t and EPOLL* */
	uint64_t user_data; /* the fd, unless SO_VMA_USER_DATA has said another */
	struct sockaddr_in src; /* of a packet, or of who has connected */
	int listen_fd; /* with VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED */
};

/* --- rings */

struct vma_rate_limit_t {
	uint32_t rate; /* kbit/s */
	uint32_t max_burst_sz; /* bytes */
	uint16_t typical_pkt_sz; /* bytes */
};

typedef int vma_ring_profile_key;

typedef enum {
	RING_LOGIC_PER_INTERFACE = 0,
	RING_LOGIC_PER_IP = 1,
	RING_LOGIC_PER_SOCKET = 10,
	RING_LOGIC_PER_USER_ID = 11,
	RING_LOGIC_PER_THREAD = 20,
	RING_LOGIC_PER_CORE = 30,
	RING_LOGIC_PER_CORE_ATTACH_THREADS = 31,
	RING_LOGIC_LAST
} ring_logic_t;

typedef enum {
	VMA_RING_ALLOC_MASK_RING_PROFILE_KEY = (1 << 0),
	VMA_RING_ALLOC_MASK_RING_USER_ID = (1 << 1),
	VMA_RING_ALLOC_MASK_RING_INGRESS = (1 << 2),
	VMA_RING_ALLOC_MASK_RING_ENGRESS = (1 << 3),
} vma_ring_alloc_logic_attr_comp_mask;

struct vma_ring_alloc_logic_attr {
	uint32_t comp_mask; /* which of the fields below are there */
	ring_logic_t ring_alloc_logic; /* always there */
	uint32_t ring_profile_key;
	uint32_t user_id;
	uint32_t ingress : 1; /* it is about receiving */
	uint32_t engress : 1; /* it is about sending */
	uint32_t reserved : 30;
};

typedef enum {
	VMA_MODIFY_RING_CQ_MODERATION = (1 << 0),
	VMA_MODIFY_RING_CQ_ARM = (1 << 1),
} vma_modify_ring_mask;

struct vma_cq_moderation_attr {
	uint32_t cq_moderation_count;
	uint32_t cq_moderation_period_usec;
};

struct vma_cq_arm_attr {
};

struct vma_modify_ring_attr {
	uint32_t comp_bit_mask; /* vma_modify_ring_mask */
	int ring_fd;
	union {
		struct vma_cq_moderation_attr cq_moderation;
		struct vma_cq_arm_attr cq_arm;
	};
};

struct vma_packet_queue_ring_attr {
	uint32_t comp_mask;
};

struct vma_external_mem_attr {
	uint32_t comp_mask;
};

typedef enum { VMA_RING_ATTR_LAST } vma_ring_type_attr_mask;

typedef enum {
	VMA_RING_PACKET,
	VMA_RING_EXTERNAL_MEM,
} vma_ring_type;

struct vma_ring_type_attr {
	uint32_t comp_mask;
	vma_ring_type ring_type;
	union {
		struct vma_packet_queue_ring_attr ring_pktq;
		struct vma_external_mem_attr ring_ext;
	};
};

/* --- a card's own queues */

typedef enum {
	VMA_HW_PP_EN = (1 << 0),
	VMA_HW_PP_BURST_EN = (1 << 3),
} mlx_hw_device_cap;

struct dev_data {
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t device_cap; /* mlx_hw_device_cap */
};

struct hw_cq_data {
	void *buf;
	volatile uint32_t *dbrec;
	uint32_t cq_size;
	uint32_t cqe_size;
	uint32_t cqn;
	void *uar;
	uint32_t *cons_idx;
};

struct hw_wq_data {
	void *buf;
	uint32_t wqe_cnt;
	uint32_t stride;
	volatile uint32_t *dbrec;
	struct hw_cq_data cq_data;
};

struct hw_rq_data {
	struct hw_wq_data wq_data;
	uint32_t *head;
	uint32_t *tail;
};

struct hw_sq_data {
	struct hw_wq_data wq_data;
	uint32_t sq_num;
	struct {
		void *reg;
		uint32_t size;
		uint32_t offset;
	} bf;
};

typedef enum {
	DATA_VALID_DEV,
	DATA_VALID_SQ,
	DATA_VALID_RQ,
} vma_mlx_hw_valid_data_mask;

struct vma_mlx_hw_device_data {
	uint32_t valid_mask; /* vma_mlx_hw_valid_data_mask */
	struct dev_data dev_data;
	struct hw_sq_data sq_data;
	struct hw_rq_data rq_data;
};

/* --- the table */

typedef enum {
	VMA_EXTRA_API_REGISTER_RECV_CALLBACK = (1 << 0),
	VMA_EXTRA_API_RECVFROM_ZCOPY = (1 << 1),
	VMA_EXTRA_API_FREE_PACKETS = (1 << 2),
	VMA_EXTRA_API_ADD_CONF_RULE = (1 << 3),
	VMA_EXTRA_API_THREAD_OFFLOAD = (1 << 4),
	VMA_EXTRA_API_DUMP_FD_STATS = (1 << 5),
	VMA_EXTRA_API_SOCKETXTREME_POLL = (1 << 6),
	VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_PACKETS = (1 << 7),
	VMA_EXTRA_API_SOCKETXTREME_REF_VMA_BUFF = (1 << 8),
	VMA_EXTRA_API_SOCKETXTREME_FREE_VMA_BUFF = (1 << 9),
	VMA_EXTRA_API_GET_SOCKET_RINGS_NUM = (1 << 10),
	VMA_EXTRA_API_GET_SOCKET_RINGS_FDS = (1 << 11),
	VMA_EXTRA_API_GET_SOCKET_TX_RING_FD = (1 << 12),
	VMA_EXTRA_API_GET_SOCKET_NETWORK_HEADER = (1 << 13),
	VMA_EXTRA_API_GET_RING_DIRECT_DESCRIPTORS = (1 << 14),
	VMA_EXTRA_API_ADD_RING_PROFILE = (1 << 16),
	VMA_EXTRA_API_REGISTER_MEMORY_ON_RING = (1 << 17),
	VMA_EXTRA_API_DEREGISTER_MEMORY_ON_RING = (1 << 18),
	VMA_EXTRA_API_MODIFY_RING = (1 << 20),
	VMA_EXTRA_API_IOCTL = (1 << 21),
} vma_extra_api_mask;

/* All return -1 and set errno when they fail. The order of the members never changes. */
struct __attribute__((packed)) vma_api_t {
	union {
		int (*register_recv_callback)(int s, vma_recv_callback_t callback, void *context);
		int (*register_rcv_callback)(int s, vma_rcv_callback_t callback, void *context);
	};
	int (*recvfrom_zcopy)(int s, void *buf, size_t len, int *flags, struct sockaddr *from,
			      socklen_t *fromlen);
	int (*free_packets)(int s, struct vma_packet_t *pkts, size_t count);
	int (*add_conf_rule)(const char *config_line);
	int (*thread_offload)(int offload, pthread_t tid);
	int (*socketxtreme_poll)(int fd, struct vma_completion_t *completions,
				 unsigned int ncompletions, int flags);
	int (*get_socket_rings_num)(int fd);
	int (*get_socket_rings_fds)(int fd, int *ring_fds, int ring_fds_sz);
	int (*get_socket_tx_ring_fd)(int sock_fd, struct sockaddr *to, socklen_t tolen);
	int (*socketxtreme_free_vma_packets)(struct vma_packet_desc_t *packets, int num);
	int (*socketxtreme_ref_vma_buff)(struct vma_buff_t *buff);
	int (*socketxtreme_free_vma_buff)(struct vma_buff_t *buff);
	int (*dump_fd_stats)(int fd, int log_level);
	int (*vma_add_ring_profile)(struct vma_ring_type_attr *profile, int *key);
	int (*get_socket_network_header)(int fd, void *ptr, uint16_t *len);
	int (*get_ring_direct_descriptors)(int fd, struct vma_mlx_hw_device_data *data);
	int (*register_memory_on_ring)(int fd, void *addr, size_t length, uint32_t *key);
	int (*deregister_memory_on_ring)(int fd, void *addr, size_t length);
	int (*vma_modify_ring)(struct vma_modify_ring_attr *mr_data);
	uint64_t vma_extra_supported_mask; /* vma_extra_api_mask: which of them do something */
	int (*ioctl)(void *cmsg_hdr, size_t cmsg_len);
};

/* The table, or NULL: the library is not loaded in front of libc. */
static inline struct vma_api_t *vma_get_api(void)
{
	struct vma_api_t *api = NULL;
	socklen_t len = sizeof(api);

	return getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, &api, &len) < 0 ? NULL : api;
}

#endif
