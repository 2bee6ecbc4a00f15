/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * VMA_ETH_MC_L2_ONLY_RULES: the flows of all groups that have one Ethernet address share a rule,
 * which matches nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ring/mlx5/internal.h"
#include "ring/mlx5/rule.h"

struct mlx5_group_rule {
	struct mlx5_group_rule *next;
	struct vma_flow_key key; /* as rule_group_key() makes it */
	unsigned flows;
};

static struct mlx5_group_rule **find(struct mlx5_ring *m, const struct vma_flow_key *flow,
				     struct vma_flow_key *key)
{
	struct mlx5_group_rule **at = &m->groups;

	rule_group_key(key, flow);
	while (*at && memcmp(&(*at)->key, key, sizeof(*key)))
		at = &(*at)->next;
	return at;
}

int mlx5_group_add(struct mlx5_ring *m, const struct vma_flow_key *flow)
{
	struct vma_flow_key key;
	struct mlx5_group_rule **at = find(m, flow, &key), *g = *at;
	int err;

	if (g) {
		g->flows++;
		return 0;
	}
	g = calloc(1, sizeof(*g));
	if (!g)
		return -ENOMEM;
	err = m->objects->ops->flow_add(m->objects, &key);
	if (err) {
		free(g);
		return err;
	}
	g->key = key;
	g->flows = 1;
	*at = g;
	return 0;
}

int mlx5_group_del(struct mlx5_ring *m, const struct vma_flow_key *flow)
{
	struct vma_flow_key key;
	struct mlx5_group_rule **at = find(m, flow, &key), *g = *at;

	if (!g)
		return -ENOENT;
	if (--g->flows)
		return 0;
	*at = g->next;
	free(g);
	return m->objects->ops->flow_del(m->objects, &key);
}

void mlx5_groups_free(struct mlx5_ring *m)
{
	struct mlx5_group_rule *g;

	while ((g = m->groups)) {
		m->groups = g->next;
		free(g);
	}
}
