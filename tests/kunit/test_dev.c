// SPDX-License-Identifier: GPL-2.0-only
/* The device's commands: what passes the gate. */
#include <linux/net.h>

#include "help.h"

static void known_commands_have_their_size(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(VMA_KMOD_SETUP), sizeof(struct vma_kmod_setup));
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(VMA_KMOD_CONN), sizeof(struct vma_kmod_conn));
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(VMA_KMOD_UNCONN), sizeof(struct vma_kmod_unconn));
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(VMA_KMOD_REGION), sizeof(struct vma_kmod_region));
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(VMA_KMOD_SECRET), sizeof(struct vma_kmod_secret));
}

/* Of all commands with our letter, in every direction and size: only those five. */
static void every_other_command_is_refused(struct kunit *test)
{
	int known = 0, dir, nr, size, n;

	for (dir = 0; dir < 4; dir++)
		for (nr = 0; nr < 256; nr++)
			for (size = 0; size < 256; size++) {
				n = vma_dev_arg_size(_IOC(dir, VMA_KMOD_IOC, nr, size));
				if (n == -ENOTTY)
					continue;
				KUNIT_EXPECT_EQ(test, n, size);
				KUNIT_EXPECT_LE(test, n, (int)sizeof(union vma_arg));
				known++;
			}
	KUNIT_EXPECT_EQ(test, known, 5);
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(0), -ENOTTY);
	KUNIT_EXPECT_EQ(test, vma_dev_arg_size(~0u), -ENOTTY);
}

static void set_up_comes_first_and_from_the_owner(struct kunit *test)
{
	struct vma_session *s = vma_session_open();
	union vma_arg arg = {};

	KUNIT_ASSERT_FALSE(test, IS_ERR(s));
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_CONN, &arg), -EBADF);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_UNCONN, &arg), -EBADF);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_REGION, &arg), -EBADF);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_SECRET, &arg), -EBADF);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_SETUP, &arg), -EPROTO);
	arg.setup.version = VMA_KMOD_VERSION;
	s->mm = (void *)8;
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_SETUP, &arg), -EPERM);
	s->mm = current->mm;
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_SETUP, &arg), 0);
	KUNIT_EXPECT_EQ(test, arg.setup.features, 15);
	memset(&arg, 0, sizeof(arg));
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_REGION, &arg), -EINVAL);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_UNCONN, &arg), -ENOENT);
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_SECRET, &arg), 0);
	/* No such fd, and one that is none. */
	arg.conn.fd = -1;
	KUNIT_EXPECT_EQ(test, vma_dev_call(s, VMA_KMOD_CONN, &arg), -EBADF);
	vma_session_end(s);
	vma_session_put(s);
}

static struct kunit_case cases[] = {KUNIT_CASE(known_commands_have_their_size),
				    KUNIT_CASE(every_other_command_is_refused),
				    KUNIT_CASE(set_up_comes_first_and_from_the_owner),
				    {}};

static struct kunit_suite suite = {
	.name = "vma_dev",
	.test_cases = cases,
};

kunit_test_suite(suite);
