# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
BPF programs of a process's control group (systemd's IPAddressDeny=, Cilium's load balancer): what they forbid is forbidden. The library
leaves the sockets of such a process to the kernel, and those of a process without such a program in user space.
"""

import contextlib
import ctypes
import os
import struct
import subprocess

import pytest

from differential import App
from netns import wait_for

SYS_BPF, BPF_PROG_LOAD, BPF_PROG_ATTACH = 321, 5, 8
CGROUP_SKB, CGROUP_SOCK_ADDR = 8, 18
# Kind of the program and where it is attached (enum bpf_prog_type, enum bpf_attach_type); the family; a call that it refuses.
SEND, CONNECT = "udp(7000).sendto(b'x', (PEER, 7200))", "udp().connect((PEER, 7200))"
HOOKS = {
    "cgroup_skb/egress": (CGROUP_SKB, 1, "4", SEND),
    "cgroup/connect4": (CGROUP_SOCK_ADDR, 10, "4", CONNECT),
    "cgroup/connect6": (CGROUP_SOCK_ADDR, 11, "6", CONNECT),
    "cgroup/sendmsg4": (CGROUP_SOCK_ADDR, 14, "4", SEND),
    "cgroup/sendmsg6": (CGROUP_SOCK_ADDR, 15, "6", SEND),
}
SAID = "VMA WARNING: nothing is offloaded in this process: its control group has a BPF program"


def bpf(command, attr):
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(attr, len(attr))
    result = libc.syscall(SYS_BPF, command, room, len(attr))
    assert result >= 0, f"bpf({command}): {os.strerror(ctypes.get_errno())}"
    return result


def refusing(kind, attach_type):
    """A program of which the kernel hears no: its descriptor."""
    code = ctypes.create_string_buffer(struct.pack("<BBhi", 0xb7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0))  # r0 = 0; exit
    licence = ctypes.create_string_buffer(b"GPL")
    # type, instructions, licence, log, version, flags, name, interface, expected_attach_type
    return bpf(BPF_PROG_LOAD, struct.pack("IIQQIIQII16sII", kind, 2, ctypes.addressof(code), ctypes.addressof(licence),
                                          0, 0, 0, 0, 0, b"refuses", 0, attach_type))


@pytest.fixture
def group(tmp_path):
    """A control group of version 2: its directory, where this process sees it."""
    root = tmp_path / "cgroup"
    root.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", root], check=True)
    path = root / f"vma-it-{os.getpid()}"
    try:
        path.mkdir()
        yield path
        wait_for(lambda: "populated 0" in (path / "cgroup.events").read_text(), 10, "nobody is in the group")
        path.rmdir()
    finally:
        subprocess.run(["umount", root], check=True)


def attach(group, kind, attach_type):
    prog, directory = refusing(kind, attach_type), os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    try:
        bpf(BPF_PROG_ATTACH, struct.pack("4I", directory, prog, attach_type, 0))
    finally:
        os.close(prog)
        os.close(directory)


def enter(app, group, unified):
    """The program enters it. ip-netns(8) has given it a /sys of its own, where no group is seen: it mounts them."""
    app.do("def mounted(kind, where):\n    if LIBC.mount(b'none', where.encode(), kind, 0, None): raise OSError(ctypes.get_errno(), where)")
    where = "/sys/fs/cgroup"
    if unified:
        app.do(f"mounted(b'tmpfs', {where!r}); os.mkdir('{where}/unified')")
        where += "/unified"
    app.do(f"mounted(b'cgroup2', {where!r}); open('{where}/{group.name}/cgroup.procs', 'w').write(str(os.getpid()))")


def sends_by_the_kernel(app):
    before = app.host.counters()
    app.ask("udp(7000).sendto(b'x', (PEER, 7300))")
    after = app.host.counters()
    return any(after[n] != before[n] for n in ("UdpOutDatagrams", "Udp6OutDatagrams"))


@pytest.mark.parametrize("unified", [False, True], ids=["version 2", "beside version 1"])
@pytest.mark.parametrize("hook", HOOKS)
def test_what_a_program_of_the_group_refuses_is_refused(net, group, hook, unified):
    kind, attach_type, family, call = HOOKS[hook]
    net.neighbours()
    attach(group, kind, attach_type)
    answers = []
    for preload in (False, True):
        with App(net.a, preload, family) as app:
            enter(app, group, unified)
            answers.append(app.ask(call))
            if preload:
                assert f"{SAID} ({hook})" in app.text, app.text
    assert answers[0] == answers[1] and answers[0][0] == "OSError", answers
    print(f"{hook}: {answers[1]}")


@pytest.mark.parametrize("unified", [False, True], ids=["version 2", "beside version 1"])
def test_a_group_without_programs_keeps_nothing_from_user_space(net, group, unified):
    """And nothing of it stays open."""
    net.neighbours()
    with App(net.a, True) as app:
        enter(app, group, unified)
        assert not sends_by_the_kernel(app)
        assert SAID not in app.text, app.text
        links = []
        for fd in os.listdir(f"/proc/{app.pid}/fd"):
            with contextlib.suppress(OSError):
                links.append(os.readlink(f"/proc/{app.pid}/fd/{fd}"))
        assert not [link for link in links if "cgroup" in link], links


def test_a_program_of_a_group_above_counts(net, group):
    net.neighbours()
    below = group / "below"
    below.mkdir()
    attach(group, CGROUP_SKB, 1)
    with App(net.a, True) as app:
        enter(app, group, False)
        app.do(f"open('/sys/fs/cgroup/{group.name}/below/cgroup.procs', 'w').write(str(os.getpid()))")
        app.ask(SEND)
        assert f"{SAID} (cgroup_skb/egress)" in app.text, app.text
    wait_for(lambda: "populated 0" in (below / "cgroup.events").read_text(), 10, "nobody is in the group")
    below.rmdir()
