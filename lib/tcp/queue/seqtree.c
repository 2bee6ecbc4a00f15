/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Top-down splaying (Sleator and Tarjan, Self-Adjusting Binary Search Trees, 1985, section 4). */
#include "tcp/queue/seqtree.h"

#include <stddef.h>

/* A rotation that lifts n's child; the child is the root of what was n's. */
static struct seq_node *lift_left(struct seq_node *n)
{
	struct seq_node *up = n->left;

	n->left = up->right;
	up->right = n;
	return up;
}

static struct seq_node *lift_right(struct seq_node *n)
{
	struct seq_node *up = n->right;

	n->right = up->left;
	up->left = n;
	return up;
}

/*
 * The node of seq, or one of its two neighbours, becomes the root of what was n's; n is not NULL.
 */
static struct seq_node *splay(struct seq_node *n, uint32_t seq)
{
	struct seq_node sides = {0}, *less = &sides, *more = &sides;

	for (;;) {
		if (seq_before(seq, n->seq)) {
			if (n->left && seq_before(seq, n->left->seq))
				n = lift_left(n);
			if (!n->left)
				break;
			more->left = n;
			more = n;
			n = n->left;
		} else if (seq_after(seq, n->seq)) {
			if (n->right && seq_after(seq, n->right->seq))
				n = lift_right(n);
			if (!n->right)
				break;
			less->right = n;
			less = n;
			n = n->right;
		} else {
			break;
		}
	}
	less->right = n->left;
	more->left = n->right;
	n->left = sides.right;
	n->right = sides.left;
	return n;
}

struct seq_node *seq_tree_find(struct seq_tree *t, uint32_t seq)
{
	if (!t->root)
		return NULL;
	t->root = splay(t->root, seq);
	if (!seq_after(t->root->seq, seq))
		return t->root;
	if (!t->root->left)
		return NULL;
	/* The last of those before it: all of them are less than seq, so the splay ends there. */
	t->root->left = splay(t->root->left, seq);
	return t->root->left;
}

void seq_tree_add(struct seq_tree *t, struct seq_node *n)
{
	struct seq_node *root = t->root;

	n->left = n->right = NULL;
	t->root = n;
	if (!root)
		return;
	root = splay(root, n->seq);
	if (seq_before(root->seq, n->seq)) {
		n->left = root;
		n->right = root->right;
		root->right = NULL;
	} else {
		n->right = root;
		n->left = root->left;
		root->left = NULL;
	}
}

void seq_tree_del(struct seq_tree *t, struct seq_node *n)
{
	struct seq_node *root = splay(t->root, n->seq), *rest = root->left;

	if (rest) {
		rest = splay(rest, n->seq);
		rest->right = root->right;
	} else {
		rest = root->right;
	}
	t->root = rest;
}
