/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The objects that rdma-core makes: nothing here is called for a packet. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring/mlx5/device.h"
#include "ring/mlx5/ibv.h"
#include "ring/mlx5/objects.h"
#include "ring/mlx5/rule.h"
#include "ring/mlx5/queue/wq.h"
#include "ring/ring.h"
#include "runtime/runtime.h"
#include "config/config.h"

/*
 * Ethernet and a VLAN tag: what the strictest of the devices wants in a descriptor; none tells user
 * space what it wants.
 */
#define INLINE_HEADER 18u
/*
 * In front of inline data in a send descriptor (control and Ethernet segment): libmlx5 sizes
 * descriptors without knowing how we use them.
 */
#define INLINE_MORE 32u
/* What libmlx5 adds to that itself, rounded up. */
#define INLINE_OWN 64u

#define TX_UNITS 4u
#define FLOW_BUCKETS 1024u
#define SYS "/sys"

struct flow {
	struct flow *next;
	struct vma_flow_key key;
	struct ibv_flow *rule; /* NULL: renew() could not add it again */
};

/* Memory of the program's, in a list. */
struct lent {
	struct lent *next;
	void *addr;
	size_t len;
	struct ibv_mr *mr;
};

struct verbs {
	struct mlx5_objects o; /* first */
	char ifname[IF_NAMESIZE];
	uint8_t mac[6];
	uint8_t port;
	uint16_t vlan;
	int vector; /* of the receive queue's completions */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr, *dm_mr;
	struct ibv_dm *dm;
	struct ibv_comp_channel *channel;
	struct ibv_cq *rx_cq, *tx_cq;
	struct ibv_qp *qp;
	struct wq wq; /* receives instead of qp, where there is one */
	struct flow *flows[FLOW_BUCKETS];
	struct lent *lent;
};

static struct verbs *verbs_of(struct mlx5_objects *o)
{
	return (struct verbs *)o; /* its first member */
}

/* --- which device */

/*
 * As the manual has it of set-ups that it does not support; once, as each socket may try again. The
 * stacks' mutex is held.
 */
static void warn_bond(const char *ifname)
{
	static char warned[IF_NAMESIZE];

	if (!strcmp(warned, ifname))
		return;
	snprintf(warned, sizeof(warned), "%s", ifname);
	log_box("Bond %s will not be offloaded by its devices' own queues.\n"
		"Bonds of RDMA devices, RoCE LAG among them, are not supported; AF_XDP is\n"
		"tried on the bond instead.",
		ifname);
}

/* As warn_bond(). */
static void warn_representor(const char *ifname)
{
	static char warned[IF_NAMESIZE];

	if (!strcmp(warned, ifname))
		return;
	snprintf(warned, sizeof(warned), "%s", ifname);
	log_warn("ring/mlx5: %s is a representor, whose RDMA device is the uplink's: no queues of "
		 "its own",
		 ifname);
}

static struct ibv_context *device_open(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;

	own_fd_begin(); /* rdma-core reads files by libc's own means */
	list = ibv.ibv_get_device_list(NULL);
	for (unsigned i = 0; list && list[i]; i++) {
		if (!strcmp(ibv.ibv_get_device_name(list[i]), name) &&
		    ibv.mlx5dv_is_supported(list[i]))
			context = ibv.ibv_open_device(list[i]);
	}
	if (list)
		ibv.ibv_free_device_list(list);
	/* What the kernel opens, not rdma-core, is known to us only here. */
	if (context)
		context->async_fd = own_fd_adopt(context->async_fd);
	own_fd_end();
	return context;
}

/* --- the queues */

/*
 * The ring says why, in one line: what could not be done, and err, a positive errno. Returns it as
 * a negative one.
 */
static int failed(struct verbs *v, const char *what, int err)
{
	v->o.failed = what;
	return err ? -err : -EIO;
}

/* As the manual has it. */
static void warn_no_permission(const struct verbs *v)
{
	log_box("Interface %s will not be offloaded by its device's own queues.\n"
		"Offloaded resources are restricted to root or user with CAP_NET_RAW\n"
		"privileges. Read the CAP_NET_RAW and root access section in the VMA's\n"
		"User Manual for more information.",
		v->ifname);
}

static int qp_start(struct verbs *v)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = v->port};
	int err = ibv.ibv_modify_qp(v->qp, &attr, IBV_QP_STATE | IBV_QP_PORT);

	if (!err) {
		attr.qp_state = IBV_QPS_RTR;
		err = ibv.ibv_modify_qp(v->qp, &attr, IBV_QP_STATE);
	}
	if (!err) {
		attr.qp_state = IBV_QPS_RTS;
		err = ibv.ibv_modify_qp(v->qp, &attr, IBV_QP_STATE);
	}
	return err ? failed(v, "modify the queue pair", err) : 0;
}

/* What the ring is told of the queues. */
static int describe(struct verbs *v)
{
	struct mlx5dv_obj obj = {
		.qp = {.in = v->qp, .out = &v->o.qp},
	};
	int err;

	v->o.qp = (struct mlx5dv_qp){0};
	v->o.rx_cq = v->o.tx_cq = (struct mlx5dv_cq){0};
	err = ibv.mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP);
	obj.cq.in = v->rx_cq;
	obj.cq.out = &v->o.rx_cq;
	if (!err)
		err = ibv.mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ);
	obj.cq.in = v->tx_cq;
	obj.cq.out = &v->o.tx_cq;
	if (!err)
		err = ibv.mlx5dv_init_obj(&obj, MLX5DV_OBJ_CQ);
	v->o.rwq = (struct mlx5dv_rwq){0};
	obj.rwq.in = v->wq.wq;
	obj.rwq.out = &v->o.rwq;
	if (!err && v->wq.wq)
		err = ibv.mlx5dv_init_obj(&obj, MLX5DV_OBJ_RWQ);
	if (err)
		return failed(v, "describe the queues", err);
	v->o.qpn = v->qp->qp_num;
	v->o.lkey = v->mr->lkey;
	v->o.min_inline = INLINE_HEADER;
	if (!params.bf)
		v->o.qp.bf.size = 0;
	return 0;
}

/*
 * Of 64 bytes, at most, in each send descriptor: as many short frames, and completions, may be in
 * the place of it.
 */
static uint32_t tx_units(const struct mlx5_want *want)
{
	uint32_t units = (want->max_inline + INLINE_MORE + INLINE_OWN + 63) / 64;

	return units > TX_UNITS ? units : TX_UNITS;
}

/*
 * The formats of mini completions that we can read: what else they have than a length is not looked
 * at.
 */
static uint8_t compressed_format(struct verbs *v)
{
	struct mlx5dv_context device = {.comp_mask = MLX5DV_CONTEXT_MASK_CQE_COMPRESION};

	if (ibv.mlx5dv_query_device(v->context, &device) ||
	    !(device.comp_mask & MLX5DV_CONTEXT_MASK_CQE_COMPRESION) ||
	    !device.cqe_comp_caps.max_num)
		return 0;
	if (device.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_HASH)
		return MLX5DV_CQE_RES_FORMAT_HASH;
	return device.cqe_comp_caps.supported_format & MLX5DV_CQE_RES_FORMAT_CSUM;
}

/*
 * The receive queue's completion queue, compressed if that is wanted and can be had. NULL and
 * errno.
 */
static struct ibv_cq *rx_cq_make(struct verbs *v, const struct mlx5_want *want)
{
	/* a frame for each stride */
	uint32_t cqe = want->rx_wre * (want->strides ? want->strides : 1);
	struct ibv_cq_init_attr_ex attr = {
		.cqe = cqe, .channel = v->channel, .comp_vector = (uint32_t)v->vector};
	struct mlx5dv_cq_init_attr more = {
		.comp_mask =
			MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE,
		/* a mini completion in the place of one of 128 bytes is another thing */
		.cqe_size = 64,
	};
	struct ibv_cq_ex *cq = NULL;

	if (want->compress)
		more.cqe_comp_res_format = compressed_format(v);
	if (more.cqe_comp_res_format)
		cq = ibv.mlx5dv_create_cq(v->context, &attr, &more);
	if (want->compress)
		log_debug("ring/mlx5: %s: completions are %scompressed", v->ifname,
			  cq ? "" : "not ");
	return cq ? ibv_cq_ex_to_cq(cq)
		  : ibv.ibv_create_cq(v->context, (int)cqe, NULL, v->channel, v->vector);
}

/* What receives instead of the queue pair, which only sends then. */
static int striding_make(struct verbs *v, const struct mlx5_want *want)
{
	const char *what;
	int err = wq_make(&v->wq, v->pd, v->rx_cq, want, &what);

	v->o.no_striding = err;
	return err ? failed(v, what, err) : 0;
}

static int queues_make(struct verbs *v, const struct mlx5_want *want)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RAW_PACKET,
		.cap =
			{
				.max_send_wr = want->tx_wre,
				.max_recv_wr = want->strides ? 0 : want->rx_wre,
				.max_send_sge = 1,
				.max_recv_sge = want->strides ? 0 : want->rx_segs + 1,
				.max_inline_data =
					want->max_inline ? want->max_inline + INLINE_MORE : 0,
			},
	};
	int err;

	v->rx_cq = rx_cq_make(v, want);
	/*
	 * Of the completions that nobody asked for some come all the same, when the queue pair ends
	 * with an error.
	 */
	v->tx_cq = v->rx_cq ? ibv.ibv_create_cq(v->context, (int)(want->tx_wre * tx_units(want)),
						NULL, NULL, 0)
			    : NULL;
	if (!v->tx_cq)
		return failed(v, "make the completion queues", errno);
	attr.send_cq = v->tx_cq;
	attr.recv_cq = v->rx_cq;
	v->qp = ibv.ibv_create_qp(v->pd, &attr);
	if (!v->qp && errno == EPERM)
		warn_no_permission(v);
	if (!v->qp)
		return failed(v, "make the queue pair", errno ? errno : EPERM);
	err = qp_start(v);
	if (!err && want->strides)
		err = striding_make(v, want);
	return err ? err : describe(v);
}

static void objects_destroy(struct ibv_qp *qp, struct ibv_cq *tx_cq, struct ibv_cq *rx_cq)
{
	if (qp)
		ibv.ibv_destroy_qp(qp);
	if (tx_cq)
		ibv.ibv_destroy_cq(tx_cq);
	if (rx_cq)
		ibv.ibv_destroy_cq(rx_cq);
}

static void queues_destroy(struct verbs *v)
{
	for (uint32_t i = 0; i < FLOW_BUCKETS; i++) {
		for (struct flow *f = v->flows[i]; f; f = f->next) {
			if (f->rule)
				ibv_destroy_flow(f->rule);
			f->rule = NULL;
		}
	}
	wq_destroy(&v->wq);
	objects_destroy(v->qp, v->tx_cq, v->rx_cq);
	v->qp = NULL;
	v->rx_cq = v->tx_cq = NULL;
}

/* 0, or -1 and errno. */
static int nonblock(int fd)
{
	int flags = raw.fcntl(fd, F_GETFL);

	return flags < 0 ? flags : raw.fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

/*
 * The capabilities of the device. (verbs.h's own inline function for it needs a function that only
 * older devices have.)
 */
static void query(struct verbs *v)
{
	struct verbs_context *vctx = verbs_get_ctx_op(v->context, query_device_ex);
	struct ibv_device_attr_ex attr = {0};

	if (!vctx || vctx->query_device_ex(v->context, NULL, &attr, sizeof(attr)))
		return;
	if (attr.tso_caps.supported_qpts & 1u << IBV_QPT_RAW_PACKET)
		v->o.max_tso = attr.tso_caps.max_tso;
	v->o.vendor_id = attr.orig_attr.vendor_id;
	v->o.part_id = attr.orig_attr.vendor_part_id;
	v->o.clock_khz = (uint32_t)attr.hca_core_clock;
	v->o.clock_mask = attr.completion_timestamp_mask;
}

static void dm_destroy(struct verbs *v)
{
	if (v->dm_mr)
		ibv.ibv_dereg_mr(v->dm_mr);
	if (v->dm)
		ibv_free_dm(v->dm);
	v->dm_mr = NULL;
	v->dm = NULL;
}

/*
 * The device's own memory, mapped. What cannot be is told: frames stay in the host's memory then.
 */
static void dm_make(struct verbs *v, uint32_t bytes)
{
	struct ibv_alloc_dm_attr attr = {.length = bytes & ~63u};
	struct mlx5dv_dm dv = {0};
	struct mlx5dv_obj obj = {.dm = {.out = &dv}};

	if (!attr.length)
		return;
	v->dm = ibv_alloc_dm(v->context, &attr);
	obj.dm.in = v->dm;
	if (v->dm)
		v->dm_mr = ibv_reg_dm_mr(v->pd, v->dm, 0, attr.length,
					 IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	if (!v->dm_mr || ibv.mlx5dv_init_obj(&obj, MLX5DV_OBJ_DM)) {
		log_warn("ring/mlx5: %s: VMA_RING_DEV_MEM_TX: no %zu bytes of the device's memory "
			 "(%s): frames to send stay in the host's",
			 v->ifname, attr.length, strerror(errno));
		dm_destroy(v);
		return;
	}
	v->o.dm = dv.buf;
	v->o.dm_bytes = (uint32_t)attr.length;
	v->o.dm_lkey = v->dm_mr->lkey;
}

/* Several frames in a descriptor: ConnectX-5 and later, which want no header in it. */
static bool multi_packet(const struct verbs *v)
{
	struct mlx5dv_context dv = {0};

	return !ibv.mlx5dv_query_device(v->context, &dv) &&
	       dv.flags & MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW;
}

static int verbs_striding(struct mlx5_objects *o, struct mlx5dv_striding_rq_caps *caps)
{
	return wq_caps(verbs_of(o)->context, caps);
}

static int verbs_start(struct mlx5_objects *o, const struct mlx5_want *want)
{
	struct verbs *v = verbs_of(o);

	v->vlan = want->vlan;
	v->pd = ibv.ibv_alloc_pd(v->context);
	if (!v->pd)
		return failed(v, "make the protection domain", errno);
	v->mr = ibv.ibv_reg_mr(v->pd, want->base, want->bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!v->mr)
		return failed(v, "register memory (is RLIMIT_MEMLOCK too low?)", errno);
	v->channel = ibv.ibv_create_comp_channel(v->context);
	if (!v->channel)
		return failed(v, "make the completion channel", errno);
	o->event_fd = v->channel->fd = own_fd_adopt(v->channel->fd);
	if (nonblock(o->event_fd) || nonblock(v->context->async_fd))
		return failed(v, "set the event channels", errno);
	o->news_fd = v->context->async_fd;
	query(v);
	o->mpw = multi_packet(v);
	dm_make(v, want->dm_bytes);
	return queues_make(v, want);
}

static int rule_add(struct verbs *v, struct flow *f)
{
	struct mlx5_rule r;

	rule_make(&r, &f->key, v->mac, v->port, v->vlan);
	f->rule = ibv_create_flow(v->wq.qp ? v->wq.qp : v->qp, &r.attr);
	if (f->rule)
		return 0;
	return errno == ENOMEM ? -ENOSPC : -errno;
}

/*
 * f's rule steers to the new queue pair, or from the new MAC, then the old rule goes: in between
 * the kernel would reset a connection that it does not know.
 */
static void rule_renew(struct verbs *v, struct flow *f)
{
	struct ibv_flow *old = f->rule;
	int err = rule_add(v, f);

	if (err)
		log_warn("ring/mlx5: %s: a steering rule could not be renewed: %s", v->ifname,
			 strerror(-err));
	if (old)
		ibv_destroy_flow(old);
}

/*
 * After a change of the MAC: a group's is not the interface's, and the same rule twice is refused.
 */
static void rule_readdress(struct verbs *v, struct flow *f)
{
	if (!ring_flow_of_group(&f->key))
		rule_renew(v, f);
}

/* Without queues there are no rules. */
static void rules_each(struct verbs *v, void (*fn)(struct verbs *v, struct flow *f))
{
	for (uint32_t i = 0; v->qp && i < FLOW_BUCKETS; i++) {
		for (struct flow *f = v->flows[i]; f; f = f->next)
			fn(v, f);
	}
}

static int verbs_renew(struct mlx5_objects *o, const struct mlx5_want *want, void **old)
{
	struct verbs *v = verbs_of(o);
	struct ibv_cq *tx_cq = v->tx_cq;
	struct ibv_qp *qp = v->qp;
	struct wq wq = v->wq;
	int err;

	*old = v->rx_cq;
	v->qp = NULL;
	v->wq = (struct wq){0};
	v->rx_cq = v->tx_cq = NULL;
	err = queues_make(v, want);
	if (!err)
		rules_each(v, rule_renew);
	else
		/* the old rules, too: the old queue pair cannot be destroyed before them */
		queues_destroy(v);
	wq_destroy(&wq);
	objects_destroy(qp, tx_cq, NULL);
	return err;
}

static void verbs_release(struct mlx5_objects *o, void *old)
{
	(void)o;
	ibv.ibv_destroy_cq(old);
}

/* One event of the device. */
static enum mlx5_news event_read(const struct verbs *v, const struct ibv_async_event *e)
{
	switch (e->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		return MLX5_DEVICE_GONE;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_WQ_FATAL:
		return MLX5_QUEUES_FAILED;
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_PORT_ACTIVE:
		/*
		 * Nothing is done: what is sent meanwhile is lost, as the kernel loses it, and all
		 * goes on when the port is back.
		 */
		if (e->element.port_num == v->port)
			log_info("ring/mlx5: %s: the port is %s", v->ifname,
				 e->event_type == IBV_EVENT_PORT_ERR ? "down" : "up");
		return MLX5_NOTHING;
	default:
		log_debug("ring/mlx5: %s: event %d of the device", v->ifname, (int)e->event_type);
		return MLX5_NOTHING;
	}
}

static int verbs_moderate(struct mlx5_objects *o, uint32_t packets, uint32_t usec)
{
	struct ibv_modify_cq_attr attr = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = {.cq_count = (uint16_t)(packets < UINT16_MAX ? packets : UINT16_MAX),
			     .cq_period = (uint16_t)(usec < UINT16_MAX ? usec : UINT16_MAX)},
	};
	struct verbs *v = verbs_of(o);
	int err = v->rx_cq ? ibv_modify_cq(v->rx_cq, &attr) : ENODEV;

	return -err;
}

static struct lent **lent_find(struct verbs *v, const void *addr, size_t len)
{
	struct lent **l = &v->lent;

	while (*l && ((*l)->addr != addr || (*l)->len != len))
		l = &(*l)->next;
	return l;
}

static int verbs_memory_add(struct mlx5_objects *o, void *addr, size_t len, uint32_t *key)
{
	struct verbs *v = verbs_of(o);
	struct lent *l;
	int err;

	if (*lent_find(v, addr, len))
		return -EEXIST;
	l = malloc(sizeof(*l));
	if (!l)
		return -ENOMEM;
	*l = (struct lent){.next = v->lent, .addr = addr, .len = len};
	l->mr = ibv.ibv_reg_mr(v->pd, addr, len, IBV_ACCESS_LOCAL_WRITE);
	if (!l->mr) {
		err = errno;
		free(l);
		return err ? -err : -EIO;
	}
	*key = l->mr->lkey;
	v->lent = l;
	return 0;
}

static int verbs_memory_del(struct mlx5_objects *o, void *addr, size_t len)
{
	struct lent **at = lent_find(verbs_of(o), addr, len), *l = *at;
	int err;

	if (!l)
		return -ENOENT;
	err = ibv.ibv_dereg_mr(l->mr);
	if (err)
		return -err;
	*at = l->next;
	free(l);
	return 0;
}

static enum mlx5_news verbs_news(struct mlx5_objects *o)
{
	enum mlx5_news worst = MLX5_NOTHING, news;
	struct verbs *v = verbs_of(o);
	struct ibv_async_event e;

	while (!ibv.ibv_get_async_event(v->context, &e)) {
		news = event_read(v, &e);
		/* At once: a queue whose events are not acknowledged cannot be destroyed. */
		ibv.ibv_ack_async_event(&e);
		if (news > worst)
			worst = news;
	}
	return worst;
}

static unsigned verbs_take_events(struct mlx5_objects *o)
{
	struct verbs *v = verbs_of(o);
	struct ibv_cq *cq;
	void *context;
	unsigned n = 0;

	while (!ibv.ibv_get_cq_event(v->channel, &cq, &context)) {
		n += cq == v->rx_cq; /* and not one that waits for its release */
		ibv.ibv_ack_cq_events(cq, 1);
	}
	return n;
}

/* --- the flows */

static struct flow **flow_find(struct verbs *v, const struct vma_flow_key *key)
{
	struct flow **f = &v->flows[ring_flow_hash(key) % FLOW_BUCKETS];

	while (*f && memcmp(&(*f)->key, key, sizeof(*key)))
		f = &(*f)->next;
	return f;
}

static int verbs_flow_add(struct mlx5_objects *o, const struct vma_flow_key *key)
{
	struct verbs *v = verbs_of(o);
	struct flow **at = flow_find(v, key), *f;
	int err;

	if (*at)
		return -EEXIST;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	f->key = *key;
	err = v->qp ? rule_add(v, f) : -ENETDOWN;
	if (err) {
		free(f);
		return err;
	}
	*at = f;
	return 0;
}

static int verbs_flow_del(struct mlx5_objects *o, const struct vma_flow_key *key)
{
	struct flow **at = flow_find(verbs_of(o), key), *f = *at;

	if (!f)
		return -ENOENT;
	*at = f->next;
	if (f->rule)
		ibv_destroy_flow(f->rule);
	free(f);
	return 0;
}

static void verbs_readdress(struct mlx5_objects *o, const uint8_t mac[6])
{
	struct verbs *v = verbs_of(o);

	memcpy(v->mac, mac, sizeof(v->mac));
	rules_each(v, rule_readdress);
}

/* --- its clocks */

static int verbs_clock_read(struct mlx5_objects *o, uint64_t *cycles)
{
	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct verbs_context *vctx = verbs_get_ctx_op(verbs_of(o)->context, query_rt_values);

	if (!vctx || vctx->query_rt_values(verbs_of(o)->context, &values) ||
	    !(values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		return -EOPNOTSUPP;
	*cycles = (uint64_t)values.raw_clock.tv_nsec;
	return 0;
}

static int verbs_clock_ptp(struct mlx5_objects *o, struct mlx5dv_clock_info *info)
{
	return -ibv.mlx5dv_get_clock_info(verbs_of(o)->context, info);
}

/* --- the life of it */

static void verbs_close(struct mlx5_objects *o)
{
	struct verbs *v = verbs_of(o);
	struct flow *f;

	queues_destroy(v);
	for (uint32_t i = 0; i < FLOW_BUCKETS; i++) {
		while ((f = v->flows[i])) {
			v->flows[i] = f->next;
			free(f);
		}
	}
	if (v->channel)
		ibv.ibv_destroy_comp_channel(v->channel);
	dm_destroy(v);
	while (v->lent && !verbs_memory_del(o, v->lent->addr, v->lent->len))
		;
	if (v->mr)
		ibv.ibv_dereg_mr(v->mr);
	if (v->pd)
		ibv.ibv_dealloc_pd(v->pd);
	ibv.ibv_close_device(v->context);
	free(v);
}

/* What rdma-core would do to close them it would ask of the parent's file. */
static void verbs_forget(struct mlx5_objects *o)
{
	struct verbs *v = verbs_of(o);

	if (v->channel)
		own_fd_close(v->channel->fd);
	own_fd_close(v->context->async_fd);
	own_fd_close(v->context->cmd_fd);
}

static const struct mlx5_object_ops verbs_ops = {
	.striding = verbs_striding,
	.start = verbs_start,
	.renew = verbs_renew,
	.release = verbs_release,
	.take_events = verbs_take_events,
	.news = verbs_news,
	.moderate = verbs_moderate,
	.memory_add = verbs_memory_add,
	.memory_del = verbs_memory_del,
	.flow_add = verbs_flow_add,
	.flow_del = verbs_flow_del,
	.readdress = verbs_readdress,
	.clock_read = verbs_clock_read,
	.clock_ptp = verbs_clock_ptp,
	.close = verbs_close,
	.forget = verbs_forget,
};

/* An Ethernet port that is up. */
static int port_check(struct verbs *v)
{
	/* The function fills the fields of its time only: the others must be zero. */
	struct ibv_port_attr attr = {0};
	int err = ibv.ibv_query_port(v->context, v->port, (struct _compat_ibv_port_attr *)&attr);

	if (err) {
		log_warn("ring/mlx5: %s: query the port: %s", v->ifname, strerror(err));
		return -err;
	}
	if (attr.link_layer != IBV_LINK_LAYER_ETHERNET) {
		log_debug("ring/mlx5: %s is not an Ethernet port", v->ifname);
		return -EOPNOTSUPP;
	}
	return 0;
}

bool mlx5_objects_likely(const char *ifname)
{
	char name[IBV_SYSFS_NAME_MAX];

	return device_name(SYS, ifname, name, sizeof(name));
}

int mlx5_objects_open(const struct ring_port *port, struct mlx5_objects **out)
{
	char name[IBV_SYSFS_NAME_MAX];
	struct verbs *v;
	int err;

	if (!device_name(SYS, port->ifname, name, sizeof(name))) {
		if (device_in_bond(SYS, port->ifname))
			warn_bond(port->ifname);
		return -EOPNOTSUPP;
	}
	if (device_is_representor(SYS, port->ifname)) {
		warn_representor(port->ifname);
		return -EOPNOTSUPP;
	}
	if (ibv_load())
		return -EOPNOTSUPP;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->o.ops = &verbs_ops;
	v->o.event_fd = v->o.news_fd = -1;
	memcpy(v->ifname, port->ifname, sizeof(v->ifname));
	memcpy(v->mac, port->mac, sizeof(v->mac));
	v->port = device_port(SYS, port->ifname);
	v->context = device_open(name);
	if (!v->context) {
		log_debug("ring/mlx5: %s: device %s is not one that we can drive", v->ifname, name);
		free(v);
		return -EOPNOTSUPP;
	}
	v->vector = device_vector(v->context->num_comp_vectors);
	err = port_check(v);
	if (err) {
		verbs_close(&v->o);
		return err;
	}
	*out = &v->o;
	return 0;
}
