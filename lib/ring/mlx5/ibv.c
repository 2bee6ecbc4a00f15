/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ring/mlx5/ibv.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/runtime.h"
#include "config/config.h"

struct ibv_table ibv;

/* The address of a library's function, NULL (logged): it has none of that name. */
static void *find(void *lib, const char *name)
{
	void *fn = dlsym(lib, name);

	if (!fn)
		log_warn("ring/mlx5: rdma-core is too old: %s", dlerror());
	return fn;
}

static int load(void)
{
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *mlx5 = verbs ? dlopen("libmlx5.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;

	if (!mlx5) {
		log_debug("ring/mlx5: rdma-core is not installed: %s", dlerror());
		return -ENOENT;
	}
#define FIND_VERBS(name)                                                                           \
	ibv.name = (__typeof__(ibv.name))find(verbs, #name);                                       \
	if (!ibv.name)                                                                             \
		return -ENOENT;
#define FIND_MLX5(name)                                                                            \
	ibv.name = (__typeof__(ibv.name))find(mlx5, #name);                                        \
	if (!ibv.name)                                                                             \
		return -ENOENT;
	IBV_FUNCTIONS(FIND_VERBS)
	MLX5DV_FUNCTIONS(FIND_MLX5)
#define FIND_OPTIONAL(name) ibv.name = (__typeof__(ibv.name))dlsym(mlx5, #name);
	MLX5DV_OPTIONAL(FIND_OPTIONAL)
	/*
	 * Before anything is registered. A kernel of 5.12 and later keeps the device's pages the
	 * parent's by itself.
	 */
	if (params.fork && ibv.ibv_fork_init())
		log_warn("ring/mlx5: a fork() may take the device's memory away (%s)",
			 strerror(errno));
	return 0;
}

int ibv_load(void)
{
	static bool tried;
	static int result;

	if (!tried)
		result = load();
	tried = true;
	return result;
}
