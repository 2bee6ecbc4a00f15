/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Objects by sequence number: a splay tree, which whoever is looked up last is on top of. So a walk
 * from neighbour to neighbour is cheap, and no order of insertions and look-ups, however ill it
 * means, costs more than O(log n) in the mean.
 */
#ifndef TCP_QUEUE_SEQTREE_H
#define TCP_QUEUE_SEQTREE_H

#include <stdint.h>

#include "tcp/seq.h"

/* Inside an object. All numbers in a tree are different and within 2^31 of each other. */
struct seq_node {
	struct seq_node *left, *right;
	uint32_t
		/* the object's own use of it is welcome; it may change while the order stays the
		   same */
		seq;
};

struct seq_tree {
	struct seq_node *root; /* NULL: empty */
};

/* The last node at or before seq; NULL: none. */
struct seq_node *seq_tree_find(struct seq_tree *t, uint32_t seq);
/* n's number must not be there. */
void seq_tree_add(struct seq_tree *t, struct seq_node *n);
/* n must be there. */
void seq_tree_del(struct seq_tree *t, struct seq_node *n);

#endif
