# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
TCP sockets shared by threads, by the program tcp_threads; scripts/test.sh runs this file with --tsan too, where library and
program are built with ThreadSanitizer and whatever it reports is a failure.
"""

import contextlib
import re

import pytest

from netns import wait_for
from test_tcp_both import pairs

PORT = 7200
THREADS = 4
kinds = pytest.mark.parametrize("kind", ["accept", "reuseport", "epoll"])


@contextlib.contextmanager
def serving(net, kind, ours, env=None):
    """The server; at the end it has to stop in order."""
    server = net.a.popen([net.library.helpers / "tcp_threads", kind, net.a.ip4, PORT, THREADS], ours, env)
    net.a.wait_bound(PORT, "tcp")
    if ours:
        wait_for(lambda: "prog/xdp" in net.a.run(["ip", "link", "show", net.a.dev]).text, what="accept()")
    if kind == "reuseport":
        wait_for(lambda: len(net.a.run(["ss", "-Hltn", f"sport = :{PORT}"]).text.splitlines()) == THREADS,
                 what="a listener for each thread")
    yield server
    assert server.stop() == 0, server.text


def client(net, what, ours, number, threads=THREADS, env=None):
    return net.b.run([net.library.helpers / "tcp_threads", what, net.a.ip4, PORT, threads, number], ours, env, timeout=60)


def accepted(server):
    """[accepted by each thread]"""
    return [int(n) for n in re.findall(r"^thread \d+ accepted (\d+)", server.text, re.M)]


@pairs
@kinds
def test_each_connection_is_accepted_once(net, server_ours, client_ours, kind):
    each = 15 if net.library.sanitize else 50
    with serving(net, kind, server_ours) as server:
        client(net, "client", client_ours, each)
    assert sum(accepted(server)) == THREADS * each
    if kind == "reuseport":
        # By a hash of the addresses: each has a share.
        assert min(accepted(server)) > 0, accepted(server)


@pairs
def test_everything_at_once(net, server_ours, client_ours):
    with serving(net, "epoll", server_ours):
        client(net, "hammer", client_ours, 1)


@pairs
def test_closed_under_readers(net, server_ours, client_ours):
    with serving(net, "epoll", server_ours):
        client(net, "close", client_ours, 1)


@pairs
def test_options_of_what_another_thread_closes(net, server_ours, client_ours):
    with serving(net, "accept", server_ours):
        client(net, "options", client_ours, 1)


@pytest.mark.parametrize("mode", [1, 2])
def test_the_control_thread(net, mode):
    """VMA_TCP_CTL_THREAD: the internal thread does what the callers would do; they still agree."""
    env = {"VMA_TCP_CTL_THREAD": mode}
    with serving(net, "accept", True, env) as server:
        client(net, "client", True, 10, env=env)
    assert sum(accepted(server)) == THREADS * 10
    with serving(net, "epoll", True, env):
        client(net, "hammer", True, 1, env=env)


def test_handed_over_while_they_come_and_go(net):
    """An exec() that fails leaves the connections of now with the kernel, and others come meanwhile: each goes to its own kernel
    socket, also one that has got the memory of another that was closed. Of the library without that a run in three says that one
    cannot be handed over, with --locks each run."""
    each = 100 if net.library.sanitize else 500
    with serving(net, "exec", True) as server:
        client(net, "client", False, each, 2 * THREADS)
    print(f"{sum(accepted(server))} accepted, {re.search(r'^(.*) programs', server.text, re.M).group(1)} times handed over")
    assert sum(accepted(server)) == 2 * THREADS * each
    assert "cannot be handed" not in server.text, server.text


@pytest.mark.parametrize("what", ["threads", pytest.param("hammer", marks=pytest.mark.no_sanitize)])
def test_udp_hammer(net, what):
    """The UDP sockets' share: test_udp_process.py has them in detail. "hammer" forks too, while other threads allocate: the child then
    may wait for ever for a lock of libasan's, which minds fork() since LLVM 18 only (llvm-project pull request 75290)."""
    peer = net.a.python("""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 7201)); print("ready")
while True:
    d, a = s.recvfrom(2000)
    if a[1]: s.sendto(d, a)  # Linux sends from port 0 what one thread sends while another takes the peer, and the port, away
""", False, [net.a.ip4])
    peer.wait_text("^ready$")
    net.neighbours()
    net.b.run([net.library.helpers / "udp_threads", what, net.b.ip4, net.a.ip4, 7201, 1], True, timeout=60)
