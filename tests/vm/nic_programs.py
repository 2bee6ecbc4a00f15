# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs on hosts with emulated cards (integration/nics.py), and what they say."""

import contextlib
import re

from netns import ip, wait_for
from test_mlx5 import ECHO, PORT, TCP_CLIENT, UDP_CLIENT

INFO = {"VMA_TRACELEVEL": "INFO", "VMA_LOG_COLORS": "0"}
# Behind a program's text: it does not end when it is done.
STAYS = "\nimport time\nwhile True: time.sleep(1)\n"


def settled(net):
    """The interfaces are up and know each other."""
    for host in (net.a, net.b):
        wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", h.dev), 10, "the interfaces up")
    net.neighbours()


def chosen(process):
    """What the log says of the interface: in which mode it is served, or why not."""
    return re.findall(r"^.*?(ring/xdp: .*)$", process.text, re.M)


def refused(process):
    """What it says of its own sockets; that other processes' may stay with the kernel is another matter (Linux 6.6 to 6.16)."""
    return [line for line in chosen(process) if re.search(r"(?<!other processes' sockets on it) stay with the kernel", line)]


def served(process):
    """In a word, for the table of scripts/vm_matrix."""
    return "the kernel" if refused(process) else re.search(r": (\S+) mode", " ".join(chosen(process)))[1]


def serves(host, kind, ours, address):
    """A program that echoes."""
    server = host.python(ECHO, ours, [kind, address], env=INFO)
    host.wait_bound(PORT, kind)
    return server


def wait_decided(host, kind, server):
    """Its packets come by the ring from now on, or never."""
    wait_for(lambda: refused(server) or host.steered(PORT, kind), 20, f"{kind} port {PORT} of {host.name} steered, or left to the kernel")


def asks(host, kind, ours, address, count, resets=False):
    """
    A program that looks at each answer, of which none is missing, unless a driver has begun anew meanwhile. Where that took its carrier
    away for the program's own ring (igb), it may lose the datagram that waited for it.
    """
    client = host.python((UDP_CLIENT if kind == "udp" else TCP_CLIENT) + STAYS, ours, [address, count], env=INFO)
    found = client.wait_text(r"^(lost \d+|whole)$", 120)
    may_be = ["lost 0", "whole"] + ["lost 1"] * ("took the carrier away" in client.text)
    assert resets or found[1] in may_be, client.text
    return client


def offloaded(host, kind, process):
    """Proves that the process's traffic does not come by the kernel; of one that was refused that it is said once."""
    said = refused(process)
    if said:
        assert len(said) == 1, said
        return contextlib.nullcontext()
    return host.bypassed(4) if kind == "udp" else host.tcp_bypassed(4)
