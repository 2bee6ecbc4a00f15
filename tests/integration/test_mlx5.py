# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The whole library on mlx5 queues in memory (tests/bench/mlx5.c): the card is the descriptor checker, in the same process."""

import json
import re

import pytest

from netns import wait_for

MLX5 = {"VMA_RING_TYPE": "mlx5"}
# Answers each datagram but those that the library's first look at the neighbour made the kernel send.
PEER = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7002))
print("bound", flush=True)
while True:
    data, who = s.recvfrom(2000)
    if data == b"by the kernel":
        s.sendto(b"answer", who)
        break
"""


def built(library, name):
    """make here, with other flags than the tree's, would build the library anew under the tests that run beside."""
    program = library.build / "bench" / "bin" / name
    assert program.exists(), f"there is no {program}: run make bench-bin"
    return program


@pytest.fixture
def program(library):
    return built(library, "mlx5")


@pytest.fixture
def rings(library, make_net):
    """Runs mlx5_rings on one of two hosts with a ring for each thread, or as `logic` says: what each ring had, and the log."""
    program, net = built(library, "mlx5_rings"), make_net()

    def run(what, *args, logic=20, **env):
        done = net.a.run([program, what, net.a.ip4, net.b.ip4, *args], timeout=120,
                         env={**MLX5, "VMA_RING_ALLOCATION_LOGIC_RX": logic, "VMA_RING_ALLOCATION_LOGIC_TX": logic, **env})
        assert "complain" not in done.text, done.text
        return json.loads(next(line for line in done.text.splitlines() if line.startswith("["))), done.text

    return run


@pytest.fixture
def ports(library, make_net):
    """Runs mlx5_ports on one of two hosts: what it prints, and the log."""
    program, net = built(library, "mlx5_ports"), make_net()

    def run(*args, env=None, prefix=(), sysctl=None):
        for name, value in (sysctl or {}).items():
            net.a.run(["sysctl", "-qw", f"{name}={value}"])
        what, *more = args
        done = net.a.run([*prefix, program, what, net.a.ip4, net.b.ip4, *more], env={**MLX5, "VMA_TRACELEVEL": "INFO", **(env or {})}, timeout=120)
        assert "complain" not in done.text, done.text
        return json.loads(next(line for line in done.text.splitlines() if line.startswith("{"))), done.text

    return run


@pytest.mark.no_sanitize
@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_datagrams_of_every_length_both_ways(make_net, program, mode):
    net = make_net()
    done = net.a.run([program, "check", net.a.ip4, net.b.ip4, 1], env={**MLX5, "VMA_THREAD_MODE": mode}, timeout=120)
    assert "complain" not in done.text, done.text


@pytest.mark.no_sanitize
@pytest.mark.parametrize("what", ["tcp_full", "tcp_full_lso"])
def test_a_full_queue_is_no_loss_for_tcp(make_net, program, what):
    net = make_net()
    done = net.a.run([program, what, net.a.ip4, net.b.ip4, 1], env=MLX5, timeout=120)
    assert "complain" not in done.text, done.text


@pytest.mark.no_sanitize
def test_when_the_device_goes_sockets_go_on_and_connections_end(make_net, program):
    net = make_net()
    peer = net.b.python(PEER, args=[net.b.ip4])
    peer.wait_text("bound")
    done = net.a.run([program, "gone", net.a.ip4, net.b.ip4, 1], env=MLX5, timeout=120)
    assert "the device is gone" in done.text, done.text
    peer.wait()


@pytest.mark.no_sanitize
@pytest.mark.parametrize("mode", ["0", "1"])
def test_connections_share_a_rule_and_nobody_else_has_their_ports(ports, mode):
    got, _ = ports("connect", 100, env={"VMA_THREAD_MODE": mode})
    assert got["rules_made"] <= 100 / 64 + 1, got
    assert got["rules_left"] <= 1  # a block of which ports are left waits for the next ones


@pytest.mark.no_sanitize
def test_what_goes_to_the_kernel_takes_its_segments_along(ports):
    got, _ = ports("to_kernel", 20)
    assert got == {"rules_made": 1 + 19, "rules_left": 19}


@pytest.mark.no_sanitize
def test_a_listeners_rule_leaves_the_kernel_what_is_the_kernels(ports):
    """Three are accepted, one waits, one of the three goes: three rules of their own in place of the listener's, and that one again."""
    got, _ = ports("serve", 4)
    assert got == {"rules_made": 1 + 4 + 1, "rules_left": 1}


@pytest.mark.no_sanitize
def test_a_port_that_is_another_processs_on_the_card(ports):
    got, _ = ports("taken", 0)
    assert got == {"rules_made": 1, "rules_left": 1}


@pytest.mark.no_sanitize
@pytest.mark.parametrize("why, args, kwargs, said", [
    ("the device refuses", ["whole_ports"], {}, "no rule for several ports"),
    ("no right", [], {"prefix": ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"]}, None),
    ("others' ports are translated", [], {"sysctl": {"net.ipv4.ip_forward": "1"}}, None),
    ("few ports", [], {"sysctl": {"net.ipv4.ip_local_port_range": "40000 40500"}}, None),
    ("reserved", [], {"sysctl": {"net.ipv4.ip_local_port_range": "40000 44999",
                                "net.ipv4.ip_local_reserved_ports": ",".join(map(str, range(40000, 45000, 16)))}}, None),
], ids=lambda x: x if isinstance(x, str) and x.islower() else "")
def test_without_blocks_each_connection_has_its_rule(ports, why, args, kwargs, said):
    got, text = ports("connect", 30, *args, **kwargs)
    assert got["rules_made"] == 30 and got["rules_left"] == 0, (why, got)
    assert text.count("no rule for several ports") == (1 if said else 0), text


@pytest.mark.no_sanitize
def test_with_a_full_table_connections_are_the_kernels_and_the_log_says_it_once(ports):
    got, text = ports("refused", 5)
    assert got == {"rules_made": 1, "rules_left": 1}
    assert text.count("takes no more steering rules") == 1, text


@pytest.mark.no_sanitize
@pytest.mark.parametrize("three, rules", [(1, 1), (0, 1 + 10 + 1)])
def test_a_datagram_sockets_rule_is_of_any_peer(ports, three, rules):
    got, _ = ports("udp", 10, env={"VMA_UDP_3T_RULES": three})
    assert got == {"rules_made": rules, "rules_left": 1}


@pytest.mark.no_sanitize
@pytest.mark.parametrize("logic,count", [(0, 1), (1, 1), (10, 4), (20, 4)])
def test_each_threads_datagrams_go_by_its_ring(rings, logic, count):
    had, _ = rings("udp", 4, logic=logic)
    assert len(had) == count and all(r["rules"] == 4 // count and r["received"] == 50 * 4 // count for r in had), had
    assert all(r["sent"] > 50 * 4 // count for r in had), had


@pytest.mark.no_sanitize
def test_each_threads_connections_have_a_block_of_ports_of_their_ring(rings):
    had, _ = rings("tcp", 3)
    assert [r["rules"] for r in had] == [1, 1, 1], had


@pytest.mark.no_sanitize
@pytest.mark.parametrize("limit,devices,warnings", [(2, 8, 0), (0, 2, 1)], ids=["limit", "device"])
def test_beyond_what_there_can_be_rings_are_shared(rings, limit, devices, warnings):
    had, log = rings("udp", 4, devices, VMA_RING_LIMIT_PER_INTERFACE=limit)
    assert [r["rules"] for r in had] == [2, 2], had
    assert log.count("no further ring") == warnings and "AF_XDP is used" not in log, log


@pytest.mark.no_sanitize
@pytest.mark.parametrize("l2_only", [0, 1])
def test_groups_of_one_ethernet_address_come_once(rings, l2_only):
    """A rule of the address alone brings all of them: one ring has it."""
    had, _ = rings("groups", 3, VMA_ETH_MC_L2_ONLY_RULES=l2_only)
    assert [r["received"] for r in had] == ([150, 0] if l2_only else [50, 50, 50]), had


@pytest.mark.no_sanitize
@pytest.mark.parametrize("on, line", [(1, "Moderation:          30 / 70 [frames/usec period]"), (0, None)])
def test_vma_stats_has_the_figures_of_the_moderation(make_net, program, on, line):
    """Of a ring whose device can hold interrupts back; that holds none back has no such line."""
    net = make_net()
    moderation = {"VMA_CQ_MODERATION_ENABLE": on, "VMA_CQ_MODERATION_COUNT": 30, "VMA_CQ_MODERATION_PERIOD_USEC": 70}
    process = net.a.popen([program, "udp_send", net.a.ip4, net.b.ip4, 100_000_000], env={**MLX5, **moderation, "VMA_STATS_SHMEM_DIR": net.tmp})
    tool = [net.library.vma_stats, "-p", process.pid, "-k", net.tmp, "-v", "3", "-c", "1"]

    def ring():
        """What is shown of the ring once the pools are: their figures come last."""
        assert process.alive(), process.text
        return re.search(r"(\tRING_\w+=.*?\n)={54}.*BUFFER_POOL", net.a.run(tool, check=False).text, re.S)
    shown = wait_for(ring, 30, "the ring in vma_stats", 0.05)[1]
    print(shown)
    assert (line in shown) if line else "Moderation" not in shown
