# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every socket option of the running kernel, on sockets in every state: result, errno, length and value are the kernel's.

options_sweep.c sets and gets them all; lib/socket/tcp/option/rows.def says what becomes of each, and is held to it.
"""

import pathlib
import re

import pytest

from netns import ROOT

TABLE = ROOT / "lib" / "socket" / "tcp" / "option"
ROW = re.compile(r"^OPTION\((\w+), (\w+), (\w+)(?:\(([^)]*)\))?\)", re.M)
LEVELS = {"SOL_SOCKET": 1, "IPPROTO_IP": 0, "IPPROTO_IPV6": 41, "IPPROTO_TCP": 6}
HEADERS = ["asm-generic/socket.h", "linux/in.h", "linux/in6.h", "linux/tcp.h"]
# What differs for a reason, in every state: the sizes that the engine tunes by itself, as long as nobody sets them, and
# what the kernel notes of an accepted connection's first segment in options that are for sending multicast.
INITIAL_DIFFERS = {(1, 7), (1, 8), (6, 10)}
# Options that take a descriptor: the library has some that the program has not.
TAKES_FD = {(1, 50), (1, 52)}
ACCEPTED_DIFFERS = {(0, 33), (41, 17), (41, 18)}


def numbers():
    """Names of options and their numbers, from the headers and from what the library knows of newer ones."""
    text = "".join((pathlib.Path("/usr/include") / h).read_text() for h in HEADERS) + (ROOT / "include/vma/sockopt_numbers.h").read_text()
    found = {m[1]: m[2] for m in re.finditer(r"^#define\s+((?:SO|IP|IPV6|TCP|MCAST)_\w+)\s+(\w+)", text, re.M)}

    def value(name):
        number = found.get(name)
        return int(number) if number and number.isdigit() else value(number) if number else None
    return {name: value(name) for name in found}


def table():
    """{(level, option): (what is done, its arguments)}"""
    number = numbers()
    number.update(SO_TIMESTAMP_OLD=29, SO_TIMESTAMPNS_OLD=35, SO_TIMESTAMPING_OLD=37)
    rows = {}
    for level, name, done, args in ROW.findall((TABLE / "rows.def").read_text()):
        assert number.get(name) is not None, f"{name} has no number"
        key = LEVELS[level], number[name]
        assert key not in rows, f"{name} has two rows"
        rows[key] = done, args
    return rows


def sweep(net, family, state, preload):
    """{(level, option): ([initial, "value: answer", ...], who serves it)}"""
    a, b = net.a, net.b
    prefix = "::ffff:" if family == "mapped" else ""
    me, peer = (a.ip6, b.ip6) if family == "6" else (prefix + a.ip4, prefix + b.ip4)
    for host in (a, b):  # Of the two that the kernel can be told here the engine has both.
        host.run(["sysctl", "-qw", "net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_timestamps=0"])
    text = a.run([net.library.helpers / "options_sweep", "sweep", family, state, me, peer, b.name], preload=preload,
                 env={"VMA_TRACELEVEL": "WARN"} if preload else None, timeout=60).text
    lines = re.findall(rf"^{state} {family} (\d+) (\d+) \|(.*) \| @ (\S+)$", text, re.M)
    assert len(lines) > 400, text[-2000:]
    return {(int(level), int(option)): (rest.split(" | "), server) for level, option, rest, server in lines}


def tolerated(key, state, i):
    return key in TAKES_FD or (key in INITIAL_DIFFERS and i == 0) or (key in ACCEPTED_DIFFERS and state == "accepted" and i == 0) or \
           (key == (6, 10) and state == "inherited")


def known_here(answers):
    return any(not re.fullmatch(r"(\S+: )?(e92|e22|e95| )+", a) for a in answers)


TCP_CASES = [(f, s) for f in ("4", "6", "mapped") for s in ("connected", "accepted", "inherited", "listening", "fresh")]
UDP_CASES = [(f, s) for f in ("4", "6", "mapped") for s in ("udp-fresh", "udp-bound", "udp-connected")]


@pytest.mark.parametrize("family, state", TCP_CASES + UDP_CASES)
def test_every_option_is_the_kernels(unet, family, state):
    kernel, ours = (sweep(unet, family, state, preload) for preload in (False, True))
    rows = table()
    differ, looked = [], 0
    for key, (answers, _) in kernel.items():
        for i, (theirs, mine) in enumerate(zip(answers, ours[key][0])):
            looked += 1
            if theirs != mine and not tolerated(key, state, i):
                differ.append(f"{key}: kernel {theirs.strip()!r}, library {mine.strip()!r}")
    assert not differ, "\n".join(differ)
    if state == "connected":
        missing = [k for k, (answers, _) in kernel.items() if k[0] in LEVELS.values() and k not in rows and known_here(answers)]
        assert not missing, f"without a row: {missing}"
        for key, (_, server) in ours.items():
            done = rows.get(key, ("MOVES", ""))[0]
            assert server == "user" or done in ("MOVES", "ASLEEP", "ASK_KERNEL"), f"{key} ({done}): the kernel has the connection"
    print(f"{len(kernel)} options, {looked} values")


@pytest.mark.parametrize("family", ["4", "6"])
def test_only_what_user_space_lacks_leaves_a_socket_to_the_kernel(unet, family):
    """0 and 1 set before connect(): options that are turned off, and those that the kernel socket keeps, cost nothing."""
    rows, seen = table(), {"user": 0, "kernel": 0}
    for key, (answers, _) in sweep(unet, family, "early", True).items():
        done, args = rows.get(key, ("MOVES", ""))
        for value, server in re.findall(r"(\d): (user|kernel)", " ".join(answers)):
            if done in ("ASLEEP", "EARLY", "NO_CONN"):
                names = {"IP_PMTUDISC_WANT": 1, "IP_PMTUDISC_DO": 2, "IPV6_PMTUDISC_DONT": 0, "IPV6_PMTUDISC_DO": 2}
                low, high = [names.get(a.strip()) if a.strip() in names else int(a) for a in args.split(",")[-2:]]
                wanted = "user" if low <= int(value) <= high else "kernel"
            else:
                wanted = "kernel" if done == "MOVES" else "user"
            assert server == wanted, f"{key} ({done}{args}) = {value}: {server} serves the connection"
            seen[server] += 1
    assert seen["user"] > 100 and seen["kernel"] > 10, seen
    print(seen)
