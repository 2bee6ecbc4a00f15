# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
sockperf with libvma's own options. Debian's binary has --load-vma. For the others it has to be compiled with
./configure --enable-vma-api CPPFLAGS=-I.../include, as Debian's is not: SOCKPERF_API=/path/to/sockperf runs them.
"""

import contextlib
import os
import random
import re
import socket

import pytest
from scapy.layers.inet import IP, TCP

from netns import wait_for

API = os.environ.get("SOCKPERF_API")


@contextlib.contextmanager
def kernel_idle(net, protocol):
    """The kernel carries next to nothing at either end: what comes before the server's socket is attached, and a connection's end."""
    with contextlib.ExitStack() as stack:
        for host in (net.a, net.b):
            stack.enter_context(host.bypassed(20) if protocol == "udp" else host.tcp_bypassed(20))
        yield


def wait_attached(net):
    """
    Waits until a SYN to net.a passes the kernel's TCP by. net.b's kernel resets what answers it: a connection that the kernel had
    made would stay the kernel's, and sockperf ends when it cannot read one without a copy.
    """
    with net.b.socket(kind=socket.SOCK_RAW, proto=socket.IPPROTO_TCP) as raw:
        def probe():
            before = net.a.counters()["TcpInSegs"]
            syn = IP(src=net.b.ip4, dst=net.a.ip4) / TCP(sport=random.randrange(20000, 30000), dport=11111, flags="S")
            raw.sendto(bytes(syn)[20:], (net.a.ip4, 0))
            while int.from_bytes(raw.recv(200)[20:22], "big") != 11111:
                pass
            return net.a.counters()["TcpInSegs"] == before
        wait_for(probe, what="port 11111 attached")


def exchange(net, protocol, program, server_options=(), client_options=(), **how):
    """A server in net.a that net.b asks for a second, each with its options; returns what they have printed."""
    common = ["-i", net.a.ip4, "-p", "11111", *(["--tcp"] if protocol == "tcp" else [])] if "-f" not in server_options else []
    server = net.a.popen([program, "server", *common, *server_options], **how)
    net.a.wait_bound(11111, protocol)
    if protocol == "tcp":
        wait_attached(net)
    else:
        server.wait_text("^ VMA INFO: ring/")

    def answered():
        """On a busy machine the ring may take the whole second to open."""
        client = net.b.run([program, "ping-pong", *common, "-t", "1", "-m", "200", *client_options], **how)
        print(client.text)
        received = re.search(r"ReceivedMessages=(\d+)", client.text)
        return client if received and int(received[1]) > 100 else None
    with kernel_idle(net, protocol):
        client = wait_for(answered, 30, "100 answers in a second")
        server.stop()
    print(server.text)
    assert "ERROR" not in client.text + server.text
    assert "dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0" in client.text
    return server.text, client.text


@pytest.mark.no_sanitize  # the sanitizers' runtimes have to come first
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_sockperf_loads_the_library_itself(net, library, protocol):
    net.neighbours()
    load = [f"--load-vma={library.path}"]
    exchange(net, protocol, "sockperf", load, load, env={"VMA_STATS_SHMEM_DIR": str(net.tmp)})


# The server's options and the client's.
CALLBACK, ZCOPY, XTREME = ["--vmarxfiltercb"], ["--vmazcopyread"], ["-F", "socketxtreme"]
WAYS = {"callback": (CALLBACK, []), "zcopy-server": (ZCOPY, []), "zcopy-client": ([], ZCOPY), "zcopy-both": (ZCOPY, ZCOPY),
        "callback-server-zcopy-client": (CALLBACK, ZCOPY), "xtreme": (XTREME, XTREME)}

if API:
    @pytest.mark.parametrize("protocol", ["udp", "tcp"])
    @pytest.mark.parametrize("way", WAYS)
    def test_sockperf_uses_the_api(net, protocol, way):
        """-F takes the addresses from a file. In SocketXtreme's mode a client is bound to an address."""
        net.neighbours()
        env, (server, client) = {}, WAYS[way]
        if way == "xtreme":
            env = {"VMA_SOCKETXTREME": "1"}
            (net.tmp / "feed").write_text(f"{protocol[0].upper()}:{net.a.ip4}:11111\n")
            server, client = ([*options, "-f", net.tmp / "feed"] for options in (server, [*client, "--client_ip", net.b.ip4]))
        for text, options in zip(exchange(net, protocol, API, server, client, preload=True, env=env), (server, client)):
            assert ("VMA Extra API is in use" in text) == bool(options)
