# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stands on top of a card: a VLAN, a bond, a bridge, a macvlan, a tunnel's TAP. By hand: `make vm NIC=igb KERNEL=6.12`.

Each is served past the kernel or refused with one line in the log; no byte is wrong or missing.
"""

import contextlib

import pytest

from nic_programs import asks, chosen, offloaded, serves, settled, wait_decided
from nics import KINDS, NicNet
from overlays import ALL, A
from test_mlx5 import PORT


@pytest.fixture(params=KINDS)
def net(request, library, tmp_path):
    n = NicNet(request.param, library, tmp_path)
    try:
        settled(n)
        yield n
        if getattr(request.node, "failed", False):
            print("\n".join(f"--- {p}\n{p.text}" for h in (n.a, n.b) for p in h.processes if p.text))
    finally:
        n.close()


@pytest.mark.parametrize("kind", ["udp", "tcp"])
@pytest.mark.parametrize("over", ALL, ids=lambda over: over.__name__)
def test_an_echo_over_it(net, over, kind):
    over(net)
    server = serves(net.a, kind, True, A)
    asks(net.b, kind, False, A, 1)
    with contextlib.ExitStack() as proof:
        # A tunnel's own datagrams are the kernel's.
        if over.__name__ != "tap":
            wait_decided(net.a, kind, server)
            proof.enter_context(offloaded(net.a, kind, server))
        client = asks(net.b, kind, True, A, 40 if kind == "udp" else 8)
    for process in (server, client):
        print(net.kind, *chosen(process), sep="\n")
