// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* What the RDMA device says of itself, and its objects that have no queue. */
#include <linux/module.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_mad.h>
#include <rdma/mlx5-abi.h>
#include <rdma/uverbs_ioctl.h>

#include "card.h"

#define VENDOR 0x2c9
#define CONNECTX5 4119
#define FIRMWARE_MAJOR 16
#define FIRMWARE_MINOR 35
#define FIRMWARE_SUB 2000
#define BF_REG_BYTES 512

static int query_device(struct ib_device *ib, struct ib_device_attr *attr, struct ib_udata *udata)
{
	struct mlx5_ib_query_device_resp answer = {};

	attr->fw_ver = (u64)FIRMWARE_MAJOR << 32 | FIRMWARE_MINOR << 16 | FIRMWARE_SUB;
	attr->sys_image_guid = ib->node_guid;
	attr->max_mr_size = CARD_MAX_MR;
	attr->page_size_cap = PAGE_SIZE;
	attr->vendor_id = VENDOR;
	attr->vendor_part_id = CONNECTX5;
	attr->max_qp = 1024;
	attr->max_qp_wr = CARD_MAX_WQEBB;
	attr->device_cap_flags = IB_DEVICE_RAW_IP_CSUM | IB_DEVICE_MANAGED_FLOW_STEERING;
	attr->max_send_sge = 30;
	attr->max_recv_sge = 32;
	attr->max_cq = 1024;
	attr->max_cqe = CARD_MAX_CQE - 1;
	attr->max_mr = 65536;
	attr->max_pd = 1024;
	attr->max_raw_ethy_qp = 1024;
	attr->max_pkeys = 1;
	attr->raw_packet_caps = IB_RAW_PACKET_CAP_IP_CSUM;
	attr->max_dm_size = CARD_MAX_DM;
	attr->cq_caps.max_cq_moderation_count = 0xffff;
	attr->cq_caps.max_cq_moderation_period = 0xfff;
	attr->hca_core_clock = CLOCK_KHZ;
	attr->timestamp_mask = U64_MAX;
	if (!udata || !udata->outlen)
		return 0;
	answer.tso_caps.max_tso = CARD_MAX_TSO;
	answer.tso_caps.supported_qpts = 1 << IB_QPT_RAW_PACKET;
	answer.mlx5_ib_support_multi_pkt_send_wqes = MLX5_IB_ALLOW_MPW | MLX5_IB_SUPPORT_EMPW;
	answer.cqe_comp_caps.max_num = CARD_SESSION;
	answer.cqe_comp_caps.supported_format = MLX5_IB_CQE_RES_FORMAT_HASH;
	answer.striding_rq_caps.min_single_stride_log_num_of_bytes = CARD_STRIDE_LOG_MIN;
	answer.striding_rq_caps.max_single_stride_log_num_of_bytes = CARD_STRIDE_LOG_MAX;
	answer.striding_rq_caps.min_single_wqe_log_num_of_strides = CARD_STRIDES_LOG_MIN;
	answer.striding_rq_caps.max_single_wqe_log_num_of_strides = CARD_STRIDES_LOG_MAX;
	answer.striding_rq_caps.supported_qpts = 1 << IB_QPT_RAW_PACKET;
	answer.response_length = min(udata->outlen, sizeof(answer));
	return ib_copy_to_udata(udata, &answer, answer.response_length);
}

static int query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	struct net_device *ndev = card_of(ib)->ndev;
	bool up = netif_running(ndev) && netif_carrier_ok(ndev);

	attr->state = up ? IB_PORT_ACTIVE : IB_PORT_DOWN;
	attr->phys_state = up ? IB_PORT_PHYS_STATE_LINK_UP : IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = iboe_get_mtu(ndev->mtu);
	attr->gid_tbl_len = 16;
	attr->ip_gids = true;
	attr->max_msg_sz = 1 << 30;
	attr->pkey_tbl_len = 1;
	attr->active_width = IB_WIDTH_4X;
	attr->active_speed = IB_SPEED_EDR;
	return 0;
}

static int port_immutable(struct ib_device *ib, u32 port, struct ib_port_immutable *im)
{
	im->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP | RDMA_CORE_PORT_RAW_PACKET;
	im->gid_tbl_len = 16;
	im->pkey_tbl_len = 1;
	im->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

static enum rdma_link_layer link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = 0xffff;
	return 0;
}

/* The table of addresses is the core's: raw packets do not look at it. */
static int add_gid(const struct ib_gid_attr *attr, void **context)
{
	return 0;
}

static int del_gid(const struct ib_gid_attr *attr, void **context)
{
	return 0;
}

static void firmware_text(struct ib_device *ib, char *text)
{
	snprintf(text, IB_FW_VERSION_NAME_MAX, "%u.%u.%04u", FIRMWARE_MAJOR, FIRMWARE_MINOR,
		 FIRMWARE_SUB);
}

static void count_context(struct card *card, int more)
{
	spin_lock_bh(&card->lock);
	card->contexts += more;
	spin_unlock_bh(&card->lock);
}

static int alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	struct mlx5_ib_alloc_ucontext_resp answer = {
		.qp_tab_size = 4096,
		.bf_reg_size = BF_REG_BYTES,
		.tot_bfregs = 0, /* each page of them is asked for */
		.cache_line_size = 64,
		.max_sq_desc_sz = MDEV_WQE_MAX,
		.max_rq_desc_sz = 512,
		.max_send_wqebb = CARD_MAX_WQEBB,
		.max_recv_wr = CARD_MAX_RQ,
		.max_srq_recv_wr = CARD_MAX_RQ,
		.num_ports = 1,
		.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
		.cqe_version = 1,
		.cmds_supp_uhw =
			MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH,
		.eth_min_inline =
			min_inline ? MLX5_USER_INLINE_MODE_L2 : MLX5_USER_INLINE_MODE_NONE,
		.clock_info_versions = 1 << MLX5_IB_CLOCK_INFO_V1,
		.hca_core_clock_offset = CLOCK_OFFSET,
		.log_uar_size = PAGE_SHIFT,
		.num_uars_per_page = 1,
	};
	struct mlx5_ib_alloc_ucontext_req_v2 want = {};
	int err;

	if (ib_copy_from_udata(&want, udata, min(udata->inlen, sizeof(want))))
		return -EFAULT;
	/* An older library would want its registers all at once. */
	if (!(want.lib_caps & MLX5_LIB_CAP_DYN_UAR) || !want.max_cqe_version)
		return -EINVAL;
	answer.response_length = min(udata->outlen, sizeof(answer));
	err = ib_copy_to_udata(udata, &answer, answer.response_length);
	if (!err)
		count_context(card_of(context->device), 1);
	return err;
}

static void dealloc_ucontext(struct ib_ucontext *context)
{
	count_context(card_of(context->device), -1);
}

static void disassociate(struct ib_ucontext *context)
{
}

static int alloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	static atomic_t last;
	struct mlx5_ib_alloc_pd_resp answer = {.pdn = atomic_inc_return(&last) & 0xffffff};

	return ib_copy_to_udata(udata, &answer, min(udata->outlen, sizeof(answer)));
}

static int dealloc_pd(struct ib_pd *pd, struct ib_udata *udata)
{
	return 0;
}

const struct ib_device_ops card_ib_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_MLX5,
	.uverbs_abi_ver = MLX5_IB_UVERBS_ABI_VERSION,
	.query_device = query_device,
	.query_port = query_port,
	.get_port_immutable = port_immutable,
	.get_link_layer = link_layer,
	.query_pkey = query_pkey,
	.add_gid = add_gid,
	.del_gid = del_gid,
	.get_dev_fw_str = firmware_text,
	.alloc_ucontext = alloc_ucontext,
	.dealloc_ucontext = dealloc_ucontext,
	.disassociate_ucontext = disassociate,
	.mmap = uar_mmap,
	.mmap_free = uar_mmap_free,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_user_mr = memory_reg,
	.get_dma_mr = memory_dma,
	.dereg_mr = memory_dereg,
	.alloc_dm = dm_alloc,
	.dealloc_dm = dm_dealloc,
	.reg_dm_mr = dm_reg,
	.create_cq = queues_create_cq,
	.modify_cq = queues_modify_cq,
	.destroy_cq = queues_destroy_cq,
	.create_qp = queues_create_qp,
	.modify_qp = queues_modify_qp,
	.query_qp = queues_query_qp,
	.destroy_qp = queues_destroy_qp,
	.create_wq = wq_create,
	.modify_wq = wq_modify,
	.destroy_wq = wq_destroy,
	.create_rwq_ind_table = wq_table_create,
	.destroy_rwq_ind_table = wq_table_destroy,
	.create_flow = flow_create,
	.destroy_flow = flow_destroy,
	INIT_RDMA_OBJ_SIZE(ib_ucontext, card_ucontext, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, card_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, card_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, card_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_rwq_ind_table, card_table, ib),
};
