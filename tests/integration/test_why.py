# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Why the kernel serves a socket or a call: vma_stats, the log and its end name the reason. Each reason is made to happen."""

import contextlib
import json
import re
import socket
import subprocess

import pytest

from differential import App
from netns import PATIENCE, ROOT, bpf_object, ip, wait_for

LIST = re.search(r"#define VMA_WHY_LIST.*?enum vma_why ", (ROOT / "include/vma/stats.h").read_text(), re.S).group(0)
TEXT = dict(re.findall(r'X\(\w+, "([\w-]+)",[\s\\]*"([^"]+)"\)', LIST))

EXCUSED = {
    "stray": "test_guard.py: a peer of which nothing comes by the ring any more",
    "membership": "the kernel would have to take one for which there is no interface, or memory",
    "steering": "a table of 65,536 rules would have to be full, or a card's",
    "ring-full": "a device would have to stand still for a second: test_udp_load.py has it, without a look at the reason",
    "many-threads": "test_crowd.py: a crowd of threads with a connection each",
    "queues": "test_queues_later.py: an interface that gets more queues",
    "other-interface": "test_tcp_route.py: a reply whose route leaves by another interface",
    "io-uring": "test_uring.py has a program of its own for it",
}

# The datagram socket, bound and waited for: what it receives has been tried.
WAITED = "s = udp(7000, {0}); await_ready(s, timeout=0.01)"
UDP = "s = udp(7000)"


class Case:
    """How a reason comes to be: lines that the program runs, one of which may fail, and what is set up before."""

    def __init__(self, path, *lines, env=None, detail="", before=None, after=None, end=None):
        self.path, self.lines, self.env, self.detail = path, lines, env or {}, detail
        self.before, self.after, self.end = before, after, end


def tun(stack, net, tmp):
    ip("-n", net.a.name, "tuntap", "add", "tun0", "mode", "tun")
    ip("-n", net.a.name, "addr", "add", "10.78.0.1/24", "dev", "tun0")
    ip("-n", net.a.name, "link", "set", "tun0", "up")


def bridged(stack, net, tmp):
    ip("-n", net.a.name, "link", "add", "br0", "type", "bridge")
    ip("-n", net.a.name, "link", "set", net.a.dev, "master", "br0")


def by_two_ways(stack, net, tmp):
    ip("-n", net.a.name, "addr", "add", "10.79.0.1/32", "dev", "lo")
    ip("-n", net.a.name, "link", "add", "other", "type", "veth", "peer", "name", "end")
    for dev in ("other", "end"):
        ip("-n", net.a.name, "link", "set", dev, "up")
    wait_for(lambda: " state UP " in ip("-n", net.a.name, "link", "show", "other"), what="the interfaces up")


def another_owner(stack, net, tmp):
    """One that cannot be joined, because it may want several rings."""
    first = stack.enter_context(App(net.a, True, env={"VMA_RING_ALLOCATION_LOGIC_RX": "20"}))
    first.do("s = udp(7001); await_ready(s, timeout=0.01)")


def another_socket(stack, net, tmp):
    first = stack.enter_context(App(net.a, False))
    first.do("s = udp(7000, None, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1))")


def a_member(stack, net, tmp):
    stack.enter_context(net.a.socket()).setsockopt(0, 35, socket.inet_aton("239.1.1.1") + socket.inet_aton(net.a.ip4))


def down(stack, net, tmp):
    ip("-n", net.a.name, "link", "set", net.a.dev, "down")


def encrypted(stack, net, tmp):
    """Something is, somewhere: which interface that concerns is a matter of routes."""
    ip("-n", net.a.name, "xfrm", "policy", "add", "dir", "out", "src", "192.0.2.1", "dst", "192.0.2.2", "tmpl", "proto", "esp", "mode", "transport")


def another_program(stack, net, tmp):
    source = '__attribute__((section("xdp"), used)) int passing(void *ctx) { return 2; }'
    bpf_object(tmp / "x.o", source)
    ip("-n", net.a.name, "-force", "link", "set", "dev", net.a.dev, "xdpgeneric", "obj", tmp / "x.o", "sec", "xdp")


def rule(text):
    def write(stack, net, tmp):
        (tmp / "libvma.conf").write_text(f"application-id * *\n{text}\n")
    return write


SENDMSG = "s.sendmsg([b'x'], [({level}, {kind}, struct.pack('i', 1))], 0, (PEER, 7200))"
NO_RIGHTS = "LIBC.capset(struct.pack('Ii', 0x20080522, 0), bytes(24))"
CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_PERFMON = 14, 21, 38


def without(*capabilities):
    """The program gives these away."""
    return (f"have = int(open('/proc/self/status').read().split('CapEff:')[1].split()[0], 16) & ~{sum(1 << c for c in capabilities)}; "
            "LIBC.capset(struct.pack('Ii', 0x20080522, 0), struct.pack('6I', *[have & 0xffffffff] * 2, 0, *[have >> 32] * 2, 0))")


CASES = {
    "rule": [
        Case("rx", WAITED.format("ME"), before=rule("use os udp_receiver *:*"), env={"VMA_CONFIG_FILE": "libvma.conf"}),
        Case("tx", UDP, "s.sendto(b'x', (PEER, 7200))", before=rule("use os udp_sender *:*"), env={"VMA_CONFIG_FILE": "libvma.conf"}),
        Case("rx", "s = socket.create_server((ME, 7000)); await_ready(s, timeout=0.01)", before=rule("use os tcp_server *:*"),
             env={"VMA_CONFIG_FILE": "libvma.conf"}),
        Case("tx", "s = socket.socket(); s.connect_ex((PEER, 7000))", before=rule("use os tcp_client *:*"),
             env={"VMA_CONFIG_FILE": "libvma.conf"})],
    "option": [
        # Pacing: of UDP it is fq(8)'s, of TCP the engine's own.
        Case("socket", UDP, "s.setsockopt(socket.SOL_SOCKET, 47, 1000000)", detail=" (SO_MAX_PACING_RATE)"),
        Case("socket", "s = socket.socket()", "s.setsockopt(socket.SOL_SOCKET, 36, 7); s.setsockopt(socket.SOL_SOCKET, 26, "
             "struct.pack('HxxxxxxP', 1, ctypes.addressof(keep := ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 65535)))))",
             detail=" (SO_ATTACH_FILTER)")],
    "async": [Case("socket", line, "fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC)") for line in (UDP, "s = socket.socket()")],
    "stamps": [Case("socket", "s = udp(); s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 4 | 64)", "s.bind((ME, 7000)); await_ready(s, timeout=0.01)")],
    "shared-port": [
        Case("rx", "s = udp(7000, None, (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)); await_ready(s, timeout=0.01)", before=another_socket)],
    "fork": [Case("socket", WAITED.format("ME"), "child = os.fork()\nif not child:\n    await_ready(s, timeout=30)\n    os._exit(0)",
                  end="os.kill(child, 9); os.waitpid(child, 0)")],
    "passed": [Case("socket", WAITED.format("ME"), "x, y = socket.socketpair(); socket.send_fds(x, [b'x'], [s.fileno()])")],
    "stdio": [Case("socket", line, "LIBC.fdopen(s.fileno(), b'r') and None") for line in (WAITED.format("ME"), "s = socket.socket()")],
    "ring-gone": [Case("socket", "s = socket.socket(); s.connect((PEER, 7300))", after=after) for after in (another_program, encrypted)],
    "local": [
        Case("tx", UDP, "s.sendto(b'x', (ME, 7200))"),
        Case("rx", WAITED.format("'127.0.0.1'")),
        Case("rx", "s = socket.create_server(('127.0.0.1', 7000)); await_ready(s, timeout=0.01)"),
        Case("rx", UDP + "; s.connect((ME, 7200)); await_ready(s, timeout=0.01)"),
        Case("tx", "s = socket.socket(); s.connect_ex((ME, 7000))")],
    "address": [Case("rx", UDP + "; s.connect(('239.1.1.1', 7200)); await_ready(s, timeout=0.01)")],
    "group-connected": [Case("rx", "s = udp(7000, '239.1.1.1'); s.connect((PEER, 7200)); await_ready(s, timeout=0.01)")],
    "multicast-loop": [Case("tx", UDP, "s.setsockopt(0, 32, bytes(4) + socket.inet_aton(ME)); s.sendto(b'x', ('239.1.1.1', 7200))", before=a_member)],
    "broadcast": [Case("tx", UDP, "s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1); s.sendto(b'x', ('10.77.0.255', 7200))")],
    "route": [Case("tx", UDP, "s.sendto(b'x', ('192.0.2.1', 7200))")],
    "neighbour": [Case("tx", UDP, "s.sendto(b'x', ('10.77.0.9', 7200))")],
    "not-ethernet": [
        Case("rx", WAITED.format("'10.78.0.1'"), before=tun),
        Case("tx", UDP, "s.sendto(b'x', ('10.78.0.2', 7200))", before=tun),
        Case("rx", "s = socket.create_server(('10.78.0.1', 7000)); await_ready(s, timeout=0.01)", before=tun)],
    "slave": [Case("rx", WAITED.format("ME"), before=bridged)],
    "down": [Case("rx", WAITED.format("ME"), before=down)],
    "owner": [Case("rx", WAITED.format("ME"), before=another_owner)],
    "capability": [
        Case("rx", NO_RIGHTS, WAITED.format("ME"), detail=" (CAP_NET_RAW)"),
        Case("rx", without(CAP_PERFMON, CAP_SYS_ADMIN), WAITED.format("ME"), detail=" (CAP_PERFMON)"),
        Case("rx", "import resource; resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))", without(CAP_IPC_LOCK),
             WAITED.format("ME"), detail=" (CAP_IPC_LOCK, or too little 'ulimit -l')")],
    "no-ring": [Case("rx", WAITED.format("ME"), env={"VMA_RING_TYPE": "mlx5"}, detail=" (Operation not supported)")],
    "ipsec": [
        Case("rx", WAITED.format("ME"), before=encrypted),
        Case("rx", "s = socket.create_server((ME, 7000)); await_ready(s, timeout=0.01)", before=encrypted),
        Case("tx", "s = socket.socket(); s.connect_ex((PEER, 7300))", before=encrypted)],
    "mtu": [Case("tx", UDP, "s.sendto(b'x', (PEER, 7200))", env={"VMA_MTU": "20"})],
    "fragment": [Case("tx", UDP, "s.sendto(b'x' * 4000, (PEER, 7200))")],
    "segments": [Case("tx", UDP, "s.setsockopt(SOL_UDP, UDP_SEGMENT, 100); s.sendmsg([b'x' * 10] * 200, [], 0, (PEER, 7200))")],
    "flags": [Case("tx", UDP, "s.sendto(b'x', socket.MSG_DONTROUTE, (PEER, 7200))", detail=" (0x4)")],
    "corked": [Case("tx", UDP, "s.sendto(b'x', socket.MSG_MORE, (PEER, 7200))")],
    "several-ways": [Case("rx", "s = socket.create_server(('10.79.0.1', 7000)); await_ready(s, timeout=0.01)", before=by_two_ways)],
    "ancillary": [Case("tx", UDP, SENDMSG.format(level="socket.SOL_SOCKET", kind=36))],
}


def tool(app, *args):
    net = app.host.net
    return subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(app.pid), *args],
                          capture_output=True, text=True, timeout=20 * PATIENCE, check=True).stdout


def reasons(app, fd):
    """What --json says of the socket: {path: reason}, and all that it ever had."""
    found = [s for s in json.loads(tool(app, "--json", "-c", "1").splitlines()[-1])["sockets"] if s["fd"] == fd]
    return ({p: w["reason"] for p, w in found[0]["why"].items()}, found[0]["why_ever"]) if found else ({}, [])


def test_each_reason_is_made_to_happen_or_excused():
    assert sorted(TEXT) == sorted([*CASES, *EXCUSED])


@pytest.mark.parametrize("reason, case", [pytest.param(r, c, id=f"{r}-{i}") for r, cases in CASES.items() for i, c in enumerate(cases)])
def test_the_reason_is_told(net, tmp_path, reason, case):
    net.neighbours()
    env = {k: tmp_path / v if v.endswith(".conf") else v for k, v in case.env.items()}
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(net.b.socket(kind=1))
        listener.bind((net.b.ip4, 7300))
        listener.listen()
        if case.before:
            case.before(stack, net, tmp_path)
        app = stack.enter_context(App(net.a, True, env={"VMA_TRACELEVEL": "DETAILS", **env}))
        for line in case.lines:
            app.ask(line)
        if case.after:
            case.after(stack, net, tmp_path)
        fd = app.do("s.fileno()")
        wait_for(lambda: reasons(app, fd)[0].get(case.path) == reason, 10, lambda: reasons(app, fd))
        assert reason in reasons(app, fd)[1]
        part = {"socket": "all", "rx": "receives", "tx": "sends"}[case.path]
        assert f"- By the kernel = [{part}: {TEXT[reason]}{case.detail}]\n" in tool(app, "-v", "3", "-c", "1")
        inode = app.do("os.fstat(s.fileno()).st_ino")
        row = wait_for(lambda: [r for r in tool(app, "-v", "5").splitlines() if f" {inode} " in r], 10, "the socket in view 5")[0]
        assert row.split()[-1] in [*reasons(app, fd)[0].values()] and row.split()[-1] in TEXT, row
        how = {"socket": "goes on", "rx": "receives", "tx": "sends"}[case.path]
        line = f"VMA DETAILS: fd {fd} {how} through the kernel: {TEXT[reason]}{case.detail}\n"
        wait_for(lambda: line in app.text, 10, lambda: f"{line} in {app.text}")
        if case.end:
            app.do(case.end)
        app.close()
        assert re.search(rf"VMA \w+: +through the kernel: 1 socket: {re.escape(TEXT[reason])}\n", app.text), app.text


def test_what_is_offloaded_has_no_reason(net):
    """A listener with TCP_FASTOPEN, a paced connection, and datagrams both ways."""
    net.neighbours()
    with App(net.a, True, env={"VMA_TRACELEVEL": "INFO"}) as app, net.b.socket(kind=1) as c, net.b.socket() as u:
        app.do("l = socket.create_server((ME, 7002)); l.setsockopt(socket.IPPROTO_TCP, 23, 5); u = udp(7000)")
        app.do("await_ready(l, timeout=0.01); await_ready(u, timeout=0.01)")
        app.start("c = l.accept()[0]; c.setsockopt(socket.SOL_SOCKET, 47, 10000000)")
        c.connect((net.a.ip4, 7002))
        app.answer()
        app.do("c.send(b'x')")
        u.bind((net.b.ip4, 7200))
        u.sendto(b"x", (net.a.ip4, 7000))
        assert app.do("await_ready(u); u.recv(10)") == b"x" or True
        app.do("u.sendto(b'x', (PEER, 7200))")
        assert u.recv(10) == b"x"
        for fd in app.do("[x.fileno() for x in (l, c, u)]"):
            assert reasons(app, fd) == ({"socket": "", "rx": "", "tx": ""}, []), fd
        app.close()
        assert "VMA_VERSION" in app.text and "through the kernel" not in app.text


def test_a_reason_that_is_over_stands_no_more(net):
    """The neighbour is known with the second datagram: what there was stays in the list."""
    with App(net.a, True, env={"VMA_TRACELEVEL": "INFO"}) as app:
        app.do(UDP)
        fd = app.do("s.fileno()")

        def offloaded():
            app.do("s.sendto(b'x', (PEER, 7200))")
            return reasons(app, fd) == ({"socket": "", "rx": "", "tx": ""}, ["neighbour"])
        wait_for(offloaded, 10, "the neighbour is known")
        app.close()
        assert "through the kernel" not in app.text  # at DETAILS only


@pytest.mark.parametrize("level, told", [("INFO", True), ("WARN", False)])
def test_the_end_tells_the_sum_where_the_banner_stands(net, level, told):
    with App(net.a, True, env={"VMA_TRACELEVEL": level}) as app:
        app.do("many = [udp() for i in range(3)]; [s.sendto(b'x', (ME, 7200)) for s in many]")
        assert "through the kernel" not in app.text
        app.close()
        assert (f"through the kernel: 3 sockets: {TEXT['local']}\n" in app.text) is told


def test_a_connection_of_the_kernel_s_is_shown_while_it_is_open(net):
    """It has no object in the library."""
    with App(net.a, True) as app:
        app.do("l = socket.create_server((ME, 7000)); s = socket.create_connection((ME, 7000)); t = socket.create_connection((ME, 7000))")
        fd, other = app.do("(s.fileno(), t.fileno())")
        inode = app.do("os.fstat(s.fileno()).st_ino")

        def row():
            rows = [r.split() for r in tool(app, "-v", "5").splitlines() if f" {inode} " in r]
            return rows and rows[0][6] == "ESTABLISHED" and rows[0]
        shown = wait_for(row, 10, "the connection in view 5")
        assert shown[:2] == ["tcp", "No"] and shown[-1] == "local", shown
        assert shown[4] == "%s:%d" % app.do("s.getsockname()") and shown[5] == f"{net.a.ip4}:7000", shown
        # The number is closed, or another socket's.
        app.do("s.close(); t.close(); u = socket.socket()")
        wait_for(lambda: reasons(app, max(fd, other)) == ({}, []), 10, "it is shown no more")
        assert app.do("u.fileno()") == min(fd, other) and reasons(app, min(fd, other))[1] == []
