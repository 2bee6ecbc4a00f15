# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel takes its time over a question of the internal thread: packets do not wait for its answer."""

import socket
import subprocess

from differential import App
from netns import wait_for
from test_tcp_both import HELPERS, PORT

# In front of the library: the third question to sock_diag(7) waits while the file is there.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	static ssize_t (*real)(int, const struct msghdr *, int);
	static int asked;
	int protocol = -1;
	socklen_t len = sizeof(protocol);

	if (!real)
		real = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len);
	if (msg->msg_name && ((struct sockaddr *)msg->msg_name)->sa_family == AF_NETLINK &&
	    protocol == NETLINK_SOCK_DIAG && ++asked == 3) {
		close(open(HELD, O_CREAT | O_WRONLY, 0600));
		while (!access(HELD, F_OK))
			usleep(1000);
	}
	return real(fd, msg, flags);
}
"""


def test_packets_do_not_wait_for_who_has_the_port(net, tmp_path):
    held, shim = tmp_path / "held", tmp_path / "shim.so"
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", f'-DHELD="{held}"', "-o", shim, tmp_path / "shim.c"], check=True)
    preload = net.library.environment()["LD_PRELOAD"].replace(str(net.library.path), f"{shim} {net.library.path}")
    with App(net.a, True, "4", {"LD_PRELOAD": preload}) as app:
        app.do(HELPERS)
        app.do("l = listener(); ready(l)")
        with net.b.socket(socket.AF_INET, socket.SOCK_STREAM) as peer:
            peer.connect((net.a.ip4, PORT))
            app.do("s, name = l.accept()")
            wait_for(held.exists, 20, "the internal thread asks who has the port")
            for i in range(20):
                peer.sendall(bytes([i]) * 100)
                assert app.do("d = exactly(s, 100); s.sendall(d); None") is None
                assert peer.recv(100, socket.MSG_WAITALL) == bytes([i]) * 100
            assert held.exists()
        held.unlink()
    print("20 messages to and fro while the kernel was asked")
