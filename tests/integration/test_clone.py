# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Processes that clone() makes past libc's fork(), as vsftpd and sandboxes do, and network namespaces that a thread enters."""

import pytest

from test_stdio_fds import PORT, server  # noqa: F401  the server is a fixture


# A child of a raw clone() is not known to libasan and libtsan.
@pytest.mark.no_sanitize
@pytest.mark.parametrize("how", ["syscall", "syscall-net", "clone3", "clone", "clone-vfork", "unshare"])
def test_who_clones_keeps_its_sockets(unet, server, how):  # noqa: F811
    argv = [unet.library.helpers / "clones", how, unet.b.ip4, PORT]
    kernel, ours = [unet.a.run(argv, preload=preload, env={"VMA_LOG_FILE": unet.tmp / "log"}).text for preload in (False, True)]
    print(kernel)
    assert ours == kernel and kernel.count("echo: ") >= 2


@pytest.mark.no_sanitize
def test_a_child_with_its_parents_number_leaves_it_its_queues(unet, server):  # noqa: F811
    """Both are number 1 of their PID namespace; afterwards the parent opens a connection, whose packets come by the queues."""
    argv = ["unshare", "--pid", "--fork", "--kill-child", unet.library.helpers / "clones", "same-pid", unet.b.ip4, PORT]
    kernel, ours = [unet.a.run(argv, preload=preload, env={"VMA_LOG_FILE": unet.tmp / "log"}).text for preload in (False, True)]
    print(kernel)
    assert ours == kernel and "parent: TCP connect(): Success" in kernel
