/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A mlx5 device in software: a card is a network interface with its RDMA device, both children
 * of one platform device, as on a real machine. Cards come in pairs with a wire between them.
 * The queues are executed by the descriptor checker in the directory above.
 */
#ifndef MLX5_DEVICE_CARD_H
#define MLX5_DEVICE_CARD_H

#include <linux/debugfs.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "../device.h"

#define CARD_MAX_WQEBB 32768u
#define CARD_MAX_RQ 32768u
#define CARD_MAX_CQE 1048576u
#define CARD_MAX_TSO (MDEV_FRAME_MAX - 128)
#define CARD_SESSION 64u
/* As ConnectX-5 has them. */
#define CARD_STRIDE_LOG_MIN 6u
#define CARD_STRIDE_LOG_MAX 13u
#define CARD_STRIDES_LOG_MIN 9u
#define CARD_STRIDES_LOG_MAX 16u
#define CARD_MAX_MR (4ull << 30)
#define CARD_MAX_DM (256u << 10)

/* What may be broken on purpose, and what is counted: files of these names in debugfs. */
struct card_faults {
	u32 drop_doorbells; /* so many UAR writes of send queues are lost */
	u32 drop_frames; /* so many frames are lost on the wire behind this card */
	u32 tx_error, rx_error; /* syndrome of the next send or receive WQE */
	u32 stall; /* no WQE is executed: the send queues fill */
	u32 delay; /* microseconds between taking a WQE over and executing it */
	u32 flows_max; /* rules that have a place */
	u32 whole_ports; /* rules for a part of a port's bits are refused */
	u32 no_wq; /* work queues are refused */
	u32 compress; /* most completions in a session, of compressed queues made from now on */
	u32 cq_error, qp_error; /* all queues of that kind report that they have failed, once */
	u32 real_time; /* completions are stamped with seconds and nanoseconds, not with cycles */
};

struct card_counts {
	u32 doorbells, arms, events;
	u32 tx_wqes, dm_reads;
	u32 tx_frames, rx_frames, rx_dropped, tx_errors, rx_errors;
	u32 sessions; /* compressed completions */
	u32 qps, wqs, rules; /* that are there */
	u32 rules_made;
	u32 vectors; /* bits: those by which completion queues were asked to tell of something */
};

struct card {
	struct mdev dev;
	struct card_ib *ib; /* NULL: removed. Written under removal and lock */
	struct mutex removal;
	struct net_device *ndev;
	struct platform_device *pdev;
	struct card *peer;
	bool link; /* RTNL's: the wire is plugged in */
	struct dentry *debug;
	struct task_struct *thread;
	wait_queue_head_t wait;

	/* Everything below, and all queues. */
	spinlock_t lock;
	struct list_head uars, qps, wqs, cqs, rules;
	struct xarray mrs;
	const struct ib_pd *pd; /* of the queue pair in hand: its keys only */
	u8 *clock; /* a page: its counter */
	struct mlx5_ib_clock_info *ptp; /* a page: the PTP clock */
	ktime_t ptp_due; /* when the latter is written again */
	struct sk_buff_head out; /* frames to leave when the lock is dropped */
	u32 next_qpn, next_cqn;
	u32 contexts; /* that user space has open */
	struct card_faults faults;
	struct card_counts counts;
};

struct card_ib {
	struct ib_device ib; /* first */
	struct card *card;
};

/* User memory that stays where it is, and is seen as one piece. */
struct pin {
	struct ib_umem *umem;
	void *map;
	u8 *at; /* its first byte */
};

struct card_mr {
	struct ib_mr ib;
	struct pin pin;
	u64 start, length;
};

struct uar {
	struct rdma_user_mmap_entry entry;
	struct list_head of_card;
	u8 *page;
	u32 id;
};

struct card_cq {
	struct ib_cq ib; /* first */
	struct mdev_cq q;
	struct pin buf, dbrec;
	/* Moderation: an event waits for so many completions, or so many microseconds. */
	u16 count, period;
	bool compressed; /* asked for when it was made */
	int vector;
	bool waiting;
	u32 told; /* producer index when it began to wait */
	ktime_t due;
	struct list_head of_card;
};

struct card_wq {
	struct ib_wq ib; /* first */
	struct mdev_rq rq;
	struct pin buf, dbrec;
	struct list_head of_card;
};

struct card_table {
	struct ib_rwq_ind_table ib; /* first */
	struct card_wq *wq;
};

struct card_qp {
	struct ib_qp ib; /* first */
	struct card_wq *wq; /* what receives for it; NULL: its own queue */
	struct mdev_sq sq;
	struct mdev_rq rq;
	struct pin sq_buf, rq_buf, dbrec;
	u32 uar;
	enum ib_qp_state state;
	struct ib_qp_cap cap;
	ktime_t due; /* when the oldest WQE is executed, if they are delayed */
	struct list_head of_card;
};

struct card_ucontext {
	struct ib_ucontext ib;
};

struct card_pd {
	struct ib_pd ib;
};

static inline struct card *card_of(struct ib_device *ib)
{
	return container_of(ib, struct card_ib, ib)->card;
}

/* card.c */
struct card *card_make(unsigned int index, unsigned int unit);
void card_free(struct card *card);
int card_plug(struct card *card);
void card_unplug(struct card *card);
void card_cq_tell(struct card *card, struct card_cq *cq);
struct card_qp *card_qp_find(struct card *card, u32 qpn);
extern const struct mdev_ops card_dev_ops;
extern uint min_inline;

/* port.c */
struct net_device *port_make(struct card *card, unsigned int index);
void port_deliver(struct card *card, struct sk_buff *skb);
void port_link(struct card *card, bool up);

/* ib.c */
extern const struct ib_device_ops card_ib_ops;

/* uar.c */
extern const struct uapi_definition uar_defs[];
int uar_mmap(struct ib_ucontext *context, struct vm_area_struct *vma);
void uar_mmap_free(struct rdma_user_mmap_entry *entry);

/* clock.c */
#define CLOCK_KHZ 156250u
#define CLOCK_OFFSET 0x40u /* in its page */
int clock_make(struct card *card);
void clock_free(struct card *card);
void clock_run(struct card *card);
u64 clock_stamp(struct card *card);
int clock_mmap(struct card *card, struct vm_area_struct *vma, unsigned long what);

/* memory.c */
int pin_get(struct pin *pin, struct ib_device *ib, u64 addr, u64 length);
void pin_put(struct pin *pin);
u8 *memory_find(struct mdev *dev, u32 lkey, u64 addr, u32 len);
struct ib_mr *memory_reg(struct ib_pd *pd, u64 start, u64 length, u64 virt, int access,
			 struct ib_udata *udata);
struct ib_mr *memory_dma(struct ib_pd *pd, int access);
int memory_dereg(struct ib_mr *mr, struct ib_udata *udata);

struct ib_mr *memory_add(struct ib_pd *pd, u8 *at, u64 length);

/* dm.c */
extern const struct uapi_definition dm_defs[];
bool dm_is(const struct rdma_user_mmap_entry *entry);
phys_addr_t dm_phys(struct rdma_user_mmap_entry *entry);
void dm_free(struct rdma_user_mmap_entry *entry);
struct ib_dm *dm_alloc(struct ib_device *ib, struct ib_ucontext *context,
		       struct ib_dm_alloc_attr *attr, struct uverbs_attr_bundle *attrs);
int dm_dealloc(struct ib_dm *dm, struct uverbs_attr_bundle *attrs);
struct ib_mr *dm_reg(struct ib_pd *pd, struct ib_dm *dm, struct ib_dm_mr_attr *attr,
		     struct uverbs_attr_bundle *attrs);

/* queues.c */
int queues_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		     struct ib_udata *udata);
int queues_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);
int queues_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int queues_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int queues_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int queues_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		    struct ib_qp_init_attr *init);
int queues_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

/* wq.c */
struct ib_wq *wq_create(struct ib_pd *pd, struct ib_wq_init_attr *attr, struct ib_udata *udata);
int wq_modify(struct ib_wq *ib, struct ib_wq_attr *attr, u32 mask, struct ib_udata *udata);
int wq_destroy(struct ib_wq *ib, struct ib_udata *udata);
int wq_table_create(struct ib_rwq_ind_table *ib, struct ib_rwq_ind_table_init_attr *attr,
		    struct ib_udata *udata);
int wq_table_destroy(struct ib_rwq_ind_table *ib);
int wq_qp_make(struct card_qp *qp, struct ib_qp_init_attr *attr, struct ib_udata *udata);

/* flow.c */
void flow_loop(struct card *card, const u8 *frame, u32 len);
struct ib_flow *flow_create(struct ib_qp *qp, struct ib_flow_attr *attr, struct ib_udata *udata);
int flow_destroy(struct ib_flow *flow);
bool flow_receive(struct card *card, const u8 *frame, u32 len);

/* run.c */
int run_thread(void *card);
void run_forget_qp(struct card *card, u32 qpn);
void run_forget_cq(struct card *card, u32 cqn);

/* fault.c */
void fault_files(struct card *card, struct dentry *root);

#endif
