# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""VMA_XDP_METADATA: what the driver tells of a frame besides its bytes."""

import re
import signal
import socket
import subprocess

import pytest

from differential import App
from netns import KERNEL, bpf_maps, bpf_object, bpftool, ip, wait_for
from test_steering_lost import program, sockets_of, take_off, talk
from test_xdp_mode import attached, echoes, shown

ON = {"VMA_XDP_MODE": "native", "VMA_XDP_METADATA": 1}
SAID = "VMA_XDP_METADATA=1 has no effect: "
PASS = 2  # XDP_PASS


def looked_at(net, ns, tci, wanted):
    """(what the program returns, bytes in front of the frame, the time stamp there) of a datagram of which the driver says so."""
    done = subprocess.run([net.library.helpers / "steer_metadata", str(ns), str(tci), str(wanted)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(f"ns {ns}, tci {tci}, wanted {wanted}: {done.stdout}")
    *numbers, frame = map(int, re.findall(r"-?\d+", done.stdout))
    assert frame == 1, "the frame is another one"
    return tuple(numbers)


def test_the_program_writes_the_stamp_in_front_of_the_frame(net):
    """No XSK is there: the verdict of one that has its frame redirected is the program's for a missing one."""
    assert looked_at(net, 1234567, 0, 1) == (PASS, 16, 1234567)
    assert looked_at(net, 0, 0, 1) == (PASS, 16, -1)  # the driver knows none: no old one is taken for it
    assert looked_at(net, 1234567, 0, 0) == (PASS, 0, -1)  # nobody wants it
    assert looked_at(net, 1234567, 5, 1) == (PASS, 0, -1)  # a VLAN's: left to the kernel as it is
    assert looked_at(net, 1234567, 0xe000, 1) == (PASS, 16, 1234567)  # priority 7 of no VLAN


def stamps_wanted(pid):
    """What the steering program of the process has been told."""
    for number in bpf_maps(pid, 2):
        if found := re.search(r"'stamps': (\d+)", str(bpftool("map", "dump", "id", number))):
            return int(found[1])
    return None


TAG = """
struct __sk_buff;
static long (*push)(struct __sk_buff *, unsigned short, unsigned short) = (void *)18; /* bpf_skb_vlan_push() */
__attribute__((section("tc"), used)) int tag(struct __sk_buff *skb) { push(skb, 0x0081, %d); return 0; }
char l[] __attribute__((section("license"), used)) = "GPL";
"""


def tagged(host, tmp_path, tci):
    """What leaves the host's interface has a tag from now on, which the device takes off again."""
    program = bpf_object(tmp_path / "tag.o", TAG % tci)
    host.run(["tc", "qdisc", "replace", "dev", host.dev, "clsact"])
    host.run(["tc", "filter", "replace", "dev", host.dev, "egress", "prio", "1", "handle", "1", "bpf", "da", "obj", program, "sec", "tc"])


def untagged(host):
    host.run(["tc", "filter", "del", "dev", host.dev, "egress"])


@pytest.mark.parametrize("who", ["kernel", "without", "with"])
def test_what_is_a_vlans_is_not_the_interfaces(net, tmp_path, who):
    """Without the driver's word such a datagram looks like one of the interface's own (docs/limits.md)."""
    net.neighbours()
    with App(net.b, who != "kernel", "4", env={**ON, "VMA_XDP_METADATA": int(who == "with")}) as app, net.a.socket() as peer:
        app.do("u = udp(7000); ready(u); u.settimeout(10)")
        for tci, text in ((5, b"of VLAN 5"), (0xe000, b"with a priority")):
            tagged(net.a, tmp_path, tci)
            peer.sendto(text, (net.b.ip4, 7000))
            untagged(net.a)
        peer.sendto(b"plain", (net.b.ip4, 7000))
        came = [app.do("u.recv(100)")]
        while came[-1] != b"plain":
            came.append(app.do("u.recv(100)"))
        print(came)
        assert came == [b"of VLAN 5"] * (who == "without") + [b"with a priority", b"plain"]
        assert stamps_wanted(app.pid) == (None if who == "kernel" else 0)  # nobody has asked for them


def test_the_mode_says_so(net):
    with net.b.tcp_bypassed(at_most=20, opens=1):
        server = echoes(net, None, "native[+]metadata mode: ", env=ON)
    assert attached(net.b) == "xdp" and shown(net, server) == "native+metadata"
    assert SAID not in server.text, server.text
    if KERNEL < (6, 17):
        return  # a second process has no ring
    with net.b.tcp_bypassed(at_most=20, opens=1):
        beside = echoes(net, None, "^ready", 7501, env=ON)
    assert shown(net, beside) == "native+metadata"
    # Who opened it is killed, and the one that stays still has it. Then that one, and the next begins with it.
    server.kill(signal.SIGKILL)
    server.wait()
    with net.a.socket(kind=socket.SOCK_STREAM, timeout=20) as s, net.b.tcp_bypassed(at_most=20):
        s.connect((net.b.ip4, 7501))
        s.sendall(b"x")
        assert s.recv(1) == b"x"
    beside.kill(signal.SIGKILL)
    beside.wait()
    echoes(net, None, "native[+]metadata mode: ", 7502, env=ON)


# All that it has but bit 21.
NO_SYS_ADMIN = (
    "caps = int([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1], 16) & ~(1 << 21); "
    "lo, hi = caps & 0xffffffff, caps >> 32; "
    "call('capset', struct.pack('Ii', 0x20080522, 0), struct.pack('6I', lo, lo, 0, hi, hi, 0))")


@pytest.mark.parametrize("before", ["", NO_SYS_ADMIN], ids=["root", "no-sys-admin"])
def test_a_bound_program_that_is_taken_off_is_put_back(net, before):
    with sockets_of(net, ON, before) as sockets:
        talk(net, *sockets, offloaded=True)
        assert SAID not in sockets[0].text, sockets[0].text
        is_there = program(net.a)
        if before:  # it hangs on a descriptor, and nobody takes it off by netlink
            return
        for _ in range(2):
            take_off(net.a, "xdpdrv")
            wait_for(lambda: program(net.a) == is_there, what="the steering program on the interface again")
            talk(net, *sockets, offloaded=True)
        assert attached(net.a) == "xdp"


def test_a_device_without_stamps_gives_none(net):
    """A veth tells a stamp of 0: the socket is served, and has none from the device, as in the kernel."""
    net.neighbours()
    with App(net.b, True, "4", env=ON) as app, net.a.socket() as peer:
        app.do("u = udp(7000); u.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, 0x5c); ready(u); u.settimeout(10)")
        before = net.b.counters()["UdpInDatagrams"]
        for i in range(20):
            peer.sendto(b"%d" % i, (net.b.ip4, 7000))
            got = app.do("u.recvmsg(100, 200)")
            assert got[0] == b"%d" % i
            (level, kind, data), = got[1]
            assert (level, kind, len(data), data[32:]) == (socket.SOL_SOCKET, 37, 48, bytes(16)), got
        assert net.b.counters()["UdpInDatagrams"] - before <= 2
        assert stamps_wanted(app.pid) == 1


def test_generic_mode_has_nobody_to_ask(net):
    server = echoes(net, "generic", "generic mode: ", env={"VMA_XDP_METADATA": 1})
    assert shown(net, server) == "generic"
    assert server.text.count(SAID + "it is for native and zero-copy mode") == 1, server.text


def test_another_program_was_there_first(net, tmp_path):
    """As without metadata: beside one that libxdp has not put there the kernel serves, and the log says so."""
    source = '__attribute__((section("xdp"), used)) int pass(void *ctx) { return 2; } char l[] __attribute__((section("license"), used)) = "GPL";'
    ip("-n", net.b.name, "link", "set", net.b.dev, "xdpdrv", "obj", bpf_object(tmp_path / "pass.o", source), "sec", "xdp")
    net.neighbours()
    with App(net.b, True, "4", env=ON) as app, net.a.socket() as peer:
        app.do("u = udp(7000); u.settimeout(10)")
        peer.sendto(b"x", (net.b.ip4, 7000))
        assert app.do("u.recv(100)") == b"x"
        assert "XDP program 'pass'" in app.text, app.text
