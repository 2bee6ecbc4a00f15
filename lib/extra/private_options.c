/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The private socket options of level SOL_SOCKET, and the profiles that one of them names. */
#include <string.h>

#include "config/config.h"
#include "extra/internal.h"
#include "stack/stack.h"

static int set_user_data(int fd, const void *val, socklen_t len)
{
	struct vfd *v = extra_socket(fd);
	uint64_t value;

	if (!v)
		return extra_fail(ENOPROTOOPT);
	if (len != sizeof(value))
		return extra_fail(EINVAL);
	memcpy(&value, val, sizeof(value));
	return extra_result(v->kind == VFD_UDP ? udp_set_user_data(v, fd, value)
					       : tcp_sock_set_user_data(v, fd, value));
}

static int get_user_data(int fd, void *val, socklen_t *len)
{
	struct vfd *v = extra_socket(fd);
	uint64_t value;

	if (!v)
		return extra_fail(ENOPROTOOPT);
	if (*len < sizeof(value))
		return extra_fail(EINVAL);
	value = v->kind == VFD_UDP ? udp_get_user_data(v, fd) : tcp_sock_get_user_data(v, fd);
	memcpy(val, &value, sizeof(value));
	*len = sizeof(value);
	return 0;
}

/* --- rings */

/* The one profile that there is: the ring's memory is the library's. 0: no profile. */
#define PROFILE_PACKET 1

int extra_add_ring_profile(struct vma_ring_type_attr *profile, int *key)
{
	if (!profile || !key)
		return extra_fail(EINVAL);
	if (profile->ring_type == VMA_RING_EXTERNAL_MEM)
		return extra_fail(EOPNOTSUPP);
	if (profile->ring_type != VMA_RING_PACKET)
		return extra_fail(EINVAL);
	/* Who asks for one will have rings by it: the first one of an interface is to know. */
	stacks_set_ring_attr();
	*key = PROFILE_PACKET;
	return 0;
}

static bool is_logic(ring_logic_t logic)
{
	switch (logic) {
	case RING_LOGIC_PER_INTERFACE:
	case RING_LOGIC_PER_IP:
	case RING_LOGIC_PER_SOCKET:
	case RING_LOGIC_PER_USER_ID:
	case RING_LOGIC_PER_THREAD:
	case RING_LOGIC_PER_CORE:
	case RING_LOGIC_PER_CORE_ATTACH_THREADS:
		return true;
	default:
		return false;
	}
}

_Static_assert((int)RING_LOGIC_PER_USER_ID == STACK_BY_USER &&
		       (int)RING_LOGIC_PER_CORE_ATTACH_THREADS == STACK_BY_CORE_PINNED,
	       "a logic has one number");

#define KNOWN_MASK                                                                                 \
	(VMA_RING_ALLOC_MASK_RING_PROFILE_KEY | VMA_RING_ALLOC_MASK_RING_USER_ID |                 \
	 VMA_RING_ALLOC_MASK_RING_INGRESS | VMA_RING_ALLOC_MASK_RING_ENGRESS)

static int set_ring_logic(int fd, const void *val, socklen_t len)
{
	struct vma_ring_alloc_logic_attr attr;
	struct vfd *v = extra_socket(fd);
	uint32_t profile = 0, user = 0;
	bool rx, tx;
	stack_ring_attr w;

	if (!v)
		return extra_fail(ENOPROTOOPT);
	if (len != sizeof(attr))
		return extra_fail(EINVAL);
	memcpy(&attr, val, sizeof(attr));
	if (attr.comp_mask & VMA_RING_ALLOC_MASK_RING_PROFILE_KEY)
		profile = attr.ring_profile_key;
	if (attr.comp_mask & VMA_RING_ALLOC_MASK_RING_USER_ID)
		user = attr.user_id;
	if (!(attr.comp_mask & KNOWN_MASK) || !is_logic(attr.ring_alloc_logic) ||
	    profile > PROFILE_PACKET)
		return extra_fail(EINVAL);
	rx = attr.comp_mask & VMA_RING_ALLOC_MASK_RING_INGRESS && attr.ingress;
	tx = attr.comp_mask & VMA_RING_ALLOC_MASK_RING_ENGRESS && attr.engress;
	w = stack_ring_attr_make((enum stack_logic)attr.ring_alloc_logic, (uint8_t)profile, user);
	if (v->kind == VFD_UDP)
		return extra_result(udp_set_ring_attr(v, fd, rx, tx, w));
	/* A connection sends by the ring that it receives by. */
	return rx ? extra_result(tcp_sock_set_ring_attr(v, fd, w)) : 0;
}

/* --- for preload */

int extra_setsockopt(int fd, int opt, const void *val, socklen_t len)
{
	if (!val && len)
		return extra_fail(EFAULT);
	return opt == SO_VMA_USER_DATA ? set_user_data(fd, val, len) : set_ring_logic(fd, val, len);
}

int extra_getsockopt(int fd, int opt, void *val, socklen_t *len)
{
	return opt == SO_VMA_USER_DATA ? get_user_data(fd, val, len) : extra_fail(ENOPROTOOPT);
}
