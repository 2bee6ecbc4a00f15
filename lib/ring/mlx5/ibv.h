/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * libibverbs and libmlx5, loaded when an interface turns out to be an RDMA device's. They are not
 * linked: a preloaded library that needs a library which is not there is not loaded at all, and
 * most machines have neither.
 */
#ifndef RING_MLX5_IBV_H
#define RING_MLX5_IBV_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

/* Macros of verbs.h in front of functions that we call as they are. */
#undef ibv_reg_mr
#undef ibv_query_port

/* Functions of libibverbs; what is an operation of the device comes as inline code of verbs.h. */
#define IBV_FUNCTIONS(X)                                                                           \
	X(ibv_get_device_list)                                                                     \
	X(ibv_free_device_list)                                                                    \
	X(ibv_get_device_name)                                                                     \
	X(ibv_open_device)                                                                         \
	X(ibv_close_device)                                                                        \
	X(ibv_fork_init)                                                                           \
	X(ibv_get_async_event)                                                                     \
	X(ibv_ack_async_event)                                                                     \
	X(ibv_query_port)                                                                          \
	X(ibv_alloc_pd)                                                                            \
	X(ibv_dealloc_pd)                                                                          \
	X(ibv_reg_mr)                                                                              \
	X(ibv_dereg_mr)                                                                            \
	X(ibv_create_comp_channel)                                                                 \
	X(ibv_destroy_comp_channel)                                                                \
	X(ibv_create_cq)                                                                           \
	X(ibv_destroy_cq)                                                                          \
	X(ibv_get_cq_event)                                                                        \
	X(ibv_ack_cq_events)                                                                       \
	X(ibv_create_qp)                                                                           \
	X(ibv_modify_qp)                                                                           \
	X(ibv_destroy_qp)
#define MLX5DV_FUNCTIONS(X)                                                                        \
	X(mlx5dv_is_supported)                                                                     \
	X(mlx5dv_create_cq)                                                                        \
	X(mlx5dv_query_device)                                                                     \
	X(mlx5dv_init_obj)                                                                         \
	X(mlx5dv_get_clock_info)

/* What an older one may be without: NULL then. */
#define MLX5DV_OPTIONAL(X) X(mlx5dv_create_wq)

#define IBV_MEMBER(name) __typeof__(name) *name;
struct ibv_table {
	IBV_FUNCTIONS(IBV_MEMBER)
	MLX5DV_FUNCTIONS(IBV_MEMBER)
	MLX5DV_OPTIONAL(IBV_MEMBER)
};
#undef IBV_MEMBER

extern struct ibv_table ibv;

/*
 * Fills the table; the libraries stay. 0 or -ENOENT: they are not there, or too old (logged once).
 * The stacks' mutex is held.
 */
int ibv_load(void);

#endif
