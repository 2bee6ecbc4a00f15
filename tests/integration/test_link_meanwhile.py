# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What happens to an interface while its ring is being opened: the stack that comes of it knows."""

import contextlib
import socket
import struct
import subprocess

import pytest

from differential import PEER_PORT, App
from netns import ip, wait_for

# Behind the library: when the interface has been looked at, and before a program of ours makes an event of its own, an AF_XDP socket's
# bind() waits while the file is there. Not yet without the other one, which is taken.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	static int (*real)(int, const struct sockaddr *, socklen_t);

	if (!real)
		real = (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "bind");
	if (addr->sa_family == AF_XDP && !unlink(ARMED)) {
		close(open(HELD, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		while (!access(HELD, F_OK))
			usleep(1000);
	}
	return real(fd, addr, len);
}
"""


@contextlib.contextmanager
def held_program(net, tmp_path):
    """A program that stops when it opens a ring while `armed` is there, the file that tells of it, and `armed`."""
    held, armed, shim = tmp_path / "held", tmp_path / "armed", tmp_path / "shim.so"
    (tmp_path / "shim.c").write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", f'-DHELD="{held}"', f'-DARMED="{armed}"', "-o", shim, tmp_path / "shim.c"], check=True)
    preload = net.library.environment()["LD_PRELOAD"].replace(str(net.library.path), f"{net.library.path} {shim}")
    net.neighbours()
    with App(net.a, True, env={"LD_PRELOAD": preload}) as app:
        try:
            yield app, held, armed
        finally:
            held.unlink(missing_ok=True)


@pytest.fixture
def opening(net, tmp_path):
    """A program that is just opening the ring of net.a's interface, and what has it go on."""
    with held_program(net, tmp_path) as (app, held, armed):
        armed.touch()
        app.start(f"s = udp(7000, ANY); s.sendto(b'opens', (PEER, {PEER_PORT}))")
        wait_for(held.exists, 20, "the ring is being opened")
        yield app, held


def events_are_read(host):
    """The library, whose is the only netlink socket that listens there, has taken in what the kernel has told."""
    lines = [line.split() for line in host.run(["cat", "/proc/net/netlink"]).text.splitlines()[1:]]
    return all(line[4] == "0" for line in lines if line[1] == "0" and int(line[3], 16))


def goes_on(app, held):
    wait_for(lambda: events_are_read(app.host), 10, "the events are read")
    held.unlink()
    app.answer(20)


def leaves_past_the_kernel(app, peer, n):
    before = app.host.counters()["UdpOutDatagrams"]
    app.do(f"s.sendto(bytes({n}), (PEER, {PEER_PORT}))")
    with contextlib.suppress(TimeoutError):
        while len(peer.recv(70000)) != n:
            pass
        return app.host.counters()["UdpOutDatagrams"] == before
    return False


def test_an_mtu_that_changes(net, opening):
    app, held = opening
    with app.peer_socket() as peer:
        ip("-n", net.b.name, "link", "set", net.b.dev, "mtu", 2500)
        # What the first one has the sockets do waits for the ring, and nothing else: the second one is read, too.
        for mtu in (2400, 2500):
            ip("-n", net.a.name, "link", "set", net.a.dev, "mtu", mtu)
            wait_for(lambda: events_are_read(net.a), 10, f"the events of the MTU {mtu} are read")
        goes_on(app, held)
        wait_for(lambda: leaves_past_the_kernel(app, peer, 2300), 10, "2300 bytes in one frame of the ring's")
    print("a datagram of the new MTU left by the ring")


def snd_mss(app):
    return struct.unpack_from("I", app.do("c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 100)"), 16)[0]


def test_the_path_of_a_connection(net, tmp_path):
    """Another interface's ring is being opened; a connection of this one follows its MTU at once."""
    ip("-n", net.a.name, "link", "add", "two-a", "type", "veth", "peer", "name", "two-b", "netns", net.b.name)
    for name, dev, n in ((net.a.name, "two-a", 1), (net.b.name, "two-b", 2)):
        ip("-n", name, "addr", "add", f"10.78.0.{n}/24", "dev", dev)
        ip("-n", name, "link", "set", dev, "up")
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as listener, held_program(net, tmp_path) as (app, held, armed):
        listener.bind((net.b.ip4, 5000))
        listener.listen()
        app.do("import threading; c = socket.create_connection((PEER, 5000)); c.send(b'x')")
        with listener.accept()[0] as peer:
            assert peer.recv(9) == b"x" and snd_mss(app) > 1400
            armed.touch()
            app.do("t = threading.Thread(target=lambda: udp(7000, '10.78.0.1').sendto(b'opens', ('10.78.0.2', 7000))); t.start()")
            wait_for(held.exists, 20, "the other ring is being opened")
            ip("-n", net.a.name, "link", "set", net.a.dev, "mtu", 1300)
            wait_for(lambda: snd_mss(app) <= 1300 - 40, 20, "segments for the new MTU")
            print(f"{snd_mss(app)} bytes in a segment while the other interface is being opened")
            assert held.exists()
            held.unlink()
            app.do("t.join()", 20)


def test_an_interface_that_goes(net, opening):
    """The ring is nobody's then; that of the interface that comes in its place is served."""
    app, held = opening
    ip("-n", net.a.name, "link", "del", net.a.dev)
    goes_on(app, held)
    net.link()
    net.neighbours()
    with app.peer_socket(timeout=0.5) as peer:
        wait_for(lambda: leaves_past_the_kernel(app, peer, 100), 20, "a datagram by the new interface's ring")
        # vma_stats has the interface of each.
        wait_for(lambda: net.a.stats(app).count("Interface:") == 1, 10, lambda: f"one ring, and no more: {net.a.stats(app)}")
    print("the old ring is gone")
