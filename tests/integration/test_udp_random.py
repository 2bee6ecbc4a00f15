# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Seeded random programs, run with the kernel and with the library: every answer must be the kernel's.

The seed is printed; VMA_TEST_SEED=n runs one program again, VMA_TEST_PROGRAMS=n more of them.
"""

import os
import random

import pytest

from differential import FAMILIES, differential

PROGRAMS = int(os.environ.get("VMA_TEST_PROGRAMS", 4))
SEEDS = [int(os.environ["VMA_TEST_SEED"])] if "VMA_TEST_SEED" in os.environ else [20261121 + i for i in range(PROGRAMS)]
PORTS = range(7000, 7004)
PEERS = range(7101, 7104)
SETS = ["(socket.SOL_SOCKET, SO_TIMESTAMP, {v})", "(socket.SOL_SOCKET, SO_TIMESTAMPNS, {v})",
        "(0, IP_RECVTTL, {v})", "(0, IP_RECVTOS, {v})", "(0, 20, {v})", "(41, 51, {v})", "(41, 66, {v})",
        "(0, 2, {v7})", "(0, 1, {v7})", "(41, 16, {v7})", "(41, 67, {v7})", "(0, 10, {v2})", "(41, 23, {v2})",
        "(socket.SOL_SOCKET, socket.SO_BROADCAST, {v})", "(SOL_UDP, UDP_SEGMENT, {seg})", "(0, IP_RECVERR, {v})",
        "(socket.SOL_SOCKET, socket.SO_PRIORITY, {v})"]
FLAGS = ["0", "socket.MSG_PEEK", "socket.MSG_TRUNC", "socket.MSG_PEEK | socket.MSG_TRUNC", "socket.MSG_WAITALL"]


def one_step(r, app, peers):
    """One random action on one of the sockets (or none: a closed one answers, too)."""
    n = r.randrange(len(PORTS))
    s = f"S[{n}]"
    kind = r.choices(["in", "recv", "out", "connect", "set", "get", "poll", "mmsg", "burst", "reopen", "dup"],
                     [20, 26, 20, 4, 7, 4, 4, 6, 5, 2, 2])[0]
    size = r.choice([0, 1, 7, 64, 500, 1471, 1472, 1473, 4000, 20000])
    byte = r.randrange(256)
    if kind == "in":
        # None in fragments: those pass by the kernel, and which of the two ways comes first is not for this test.
        peers[r.choice(list(PEERS))].sendto(bytes([byte]) * min(size, 1452), app.at(r.choice(list(PORTS))))
        app("settle()")
    elif kind == "recv":
        flags = r.choice(FLAGS)
        room = r.choice([0, 1, 100, 70000])
        if "TRUNC" in flags:
            app(f"call('recv', {s}.fileno(), bytes(70000), {room}, {flags} | socket.MSG_DONTWAIT)")
        else:
            app(f"rmsg({s}, {room}, {r.choice([0, 0, 20, 40, 512])}, {flags} | socket.MSG_DONTWAIT)")
    elif kind == "out":
        to = f"(PEER, {r.choice(list(PEERS))})"
        code = r.choice([f"{s}.sendto(bytes([{byte}]) * {size}, {to})", f"{s}.send(bytes([{byte}]) * {size})",
                         f"{s}.sendmsg([b'a' * 3, bytes([{byte}]) * {size}, b'', b'z'], [], 0, {to})",
                         f"os.write({s}.fileno(), bytes([{byte}]) * {size})"])
        app(code)
    elif kind == "burst":
        app(f"sendmmsg({s}, [bytes([{byte} ^ i]) * ({size} % 1400 + i) for i in range(5)], (PEER, {r.choice(list(PEERS))}))")
    elif kind == "connect":
        app(r.choice([f"{s}.connect((PEER, {r.choice(list(PEERS))}))", f"disconnect({s})"]))
        app(f"{s}.getsockname()[:2]")
    elif kind == "set":
        option = r.choice(SETS).format(v=r.randrange(2), v7=r.choice([1, 7, 64, 255]), v2=r.randrange(4),
                                       seg=r.choice([0, 0, 100, 700, 1472]))
        app(f"{s}.setsockopt(*{option})")
        app(f"{s}.getsockopt(*{option}[:2], 16)")
    elif kind == "get":
        app(r.choice([f"{s}.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)", f"{s}.getsockname()",
                      f"{s}.getpeername()", f"struct.unpack('i', fcntl.ioctl({s}, termios.FIONREAD, bytes(4)))[0]"]))
    elif kind == "poll":
        app(f"ready({s})")
    elif kind == "mmsg":
        app(f"recvmmsg({s}, {r.randrange(1, 6)}, size={r.choice([10, 2000, 30000])}, flags=socket.MSG_DONTWAIT)")
    elif kind == "reopen":
        app(f"{s}.close(); {s} = udp({PORTS[n]}, ANY)")
    else:
        app(f"t = {s}.dup(); {s}.close(); {s} = t")


# Parameters that change how packets are taken in; the answers stay the same.
SETTINGS = [{"VMA_THREAD_MODE": 0, "VMA_RX_POLL": -1}, {"VMA_THREAD_MODE": 2, "VMA_CQ_POLL_BATCH_MAX": 1},
            {"VMA_THREAD_MODE": 3, "VMA_RX_POLL": 0, "VMA_PROGRESS_ENGINE_INTERVAL": 1},
            {"VMA_PROGRESS_ENGINE_INTERVAL": 0, "VMA_RX_POLL_YIELD": 1, "VMA_RX_UDP_POLL_OS_RATIO": 1}]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_random_programs(unet, family, seed):
    print("seed", seed)
    differential(unet, family, program(family, seed))


@pytest.mark.parametrize("env", SETTINGS, ids=lambda e: ",".join(f"{k[4:].lower()}={v}" for k, v in e.items()))
def test_random_programs_with_other_parameters(unet, env):
    for family in FAMILIES:
        differential(unet, family, program(family, SEEDS[0] + 1000), env)


@pytest.mark.parametrize("queues", [2, 4])
def test_random_programs_on_several_queues(make_net, queues):
    net = make_net(queues=queues)
    for family in FAMILIES:
        differential(net, family, program(family, SEEDS[0] + 2000))


def program(family, seed):
    """The steps of one seed."""
    def steps(app, _):
        r = random.Random(f"{family} {seed}")
        peers = {p: app.peer_socket(p) for p in PEERS}
        app.do(f"""
S = [udp(p, ANY) for p in {list(PORTS)}]
# From the start: turned on later, the kernel shows interface 0 for what is queued already, the library the right one.
S[0].setsockopt(0, IP_PKTINFO, 1)
if FAM == socket.AF_INET6: S[0].setsockopt(41, 49, 1)
def settle():
    # Until nothing new has shown for a moment: by the ring at once, by the kernel after its worker has looked.
    time.sleep(0.002); [ready(s) for s in S]
""")
        try:
            for _ in range(150):
                one_step(r, app, peers)
            app("[ready(s) for s in S]")
            # What each peer got, in order, and what is left in the queues.
            for p, s in sorted(peers.items()):
                s.setblocking(False)
                got = []
                try:
                    while True:
                        data, address = s.recvfrom(70000)
                        got.append((address[1], len(data), data[:2], data[-2:]))
                except BlockingIOError:
                    pass
                app.note(f"peer {p} got", got)
            for n in range(len(PORTS)):
                app(f"recvmmsg(S[{n}], 100, size=70000, flags=socket.MSG_DONTWAIT)")
        finally:
            for s in peers.values():
                s.close()
    return steps
