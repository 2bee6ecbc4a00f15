# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The AF_XDP ring and the steering program against the kernel, without the socket layer.

    net.a  kernel sockets [ veth-a ] ---- [ veth-b ]  a ring in ring_test, driven over its standard input  net.b
"""

import contextlib
import json
import os
import pathlib
import re
import select
import socket
import struct
import subprocess

import pytest

from netns import KERNEL, PATIENCE, bpf_object, ip, wait_for

PORT = 9999
UDP_SEGMENT = 103
SOL_PACKET, PACKET_VNET_HDR = 263, 15


class Ring:
    """A ring_test process. Called with a command it returns the answer."""

    def __init__(self, host, library, env=None, here=False, unprivileged=False):
        """here: with the mounts of the test, not in those of its own that ip netns exec makes."""
        program = library.build / "tests/integration/ring_test"
        if not program.exists():
            program = library.helpers / "ring_test"
        self.errors = host.net.tmp / f"ring-{id(self)}"
        full = {k: v for k, v in os.environ.items() if not k.startswith("VMA_")}
        full.update(env or {})
        with open(self.errors, "wb") as err:
            if unprivileged:
                program = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", program]
            else:
                program = [program]
            argv = ["nsenter", f"--net=/run/netns/{host.name}", *program] if here else host.argv(program)
            self.popen = subprocess.Popen(argv, env=full, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=err, text=True)
        self.pid = self.popen.pid

    def tell(self, command):
        self.popen.stdin.write(command + "\n")
        self.popen.stdin.flush()

    def answer(self, timeout=20):
        ready, _, _ = select.select([self.popen.stdout], [], [], timeout)
        line = self.popen.stdout.readline() if ready else ""
        assert line, f"no answer; the ring said:\n{self.log}"
        return json.loads(line)

    def __call__(self, command):
        self.tell(command)
        return self.answer()

    @property
    def log(self):
        return self.errors.read_text()

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        return self.popen.wait(10 * PATIENCE)


@pytest.fixture
def rings(net, library):
    """A function that starts a ring_test in net.b and opens the ring there unless told otherwise."""
    made = []

    def make(opened=True, env=None, **options):
        ring = Ring(net.b, library, env, **options)
        made.append(ring)
        if opened:
            assert ring(f"open {net.b.dev}")["open"] == 0, ring.log
        return ring

    net.neighbours()
    yield make
    for ring in made:
        ring.popen.kill()
        ring.popen.wait()


def in_mounts_of(pid, *argv):
    """Runs a program where the process sees its bpffs."""
    return subprocess.run(["nsenter", "-t", str(pid), "-m", "--", *argv], capture_output=True, text=True)


def xdp_attached(host):
    return "xdp" in ip("-n", host.name, "link", "show", host.dev)


def receive_all(sock, wait=0.5):
    """The payloads that come until nothing has come for a while."""
    got = []
    sock.settimeout(wait)
    with contextlib.suppress(TimeoutError):
        while True:
            got.append(sock.recv(70000))
    return got


def mac_of(host):
    return ip("-n", host.name, "-br", "link", "show", host.dev).split()[2]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("exact", [False, True], ids=["3tuple", "exact"])
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "among_others"])
def test_a_flow_takes_its_packets_and_no_others(net, rings, family, exact, others):
    af = socket.AF_INET if family == 4 else socket.AF_INET6
    ring = rings()
    local, remote = net.b.ip(family), net.a.ip(family)
    assert ring(f"flow add {family} udp {local} {PORT}" + (f" {remote} 5000" if exact else ""))["flow"] == 0
    for i in range(others):  # makes the program look into the flow table instead of the port's entry
        assert ring(f"flow add {family} udp {local} {PORT} {remote} {6000 + i}")["flow"] == 0
    kernel = net.b.socket(af)
    kernel.bind(("::" if family == 6 else "", PORT))
    mine, other = net.a.socket(af), net.a.socket(af)
    mine.bind(("::" if family == 6 else "", 5000))
    other.bind(("::" if family == 6 else "", 5001))
    for _ in range(10):
        mine.sendto(b"mine", (local, PORT))
        other.sendto(b"other", (local, PORT))
    got = ring("recv 20 700")
    assert got["recv"] == (10 if exact else 20)
    assert got["bad"] == 0 and got["partial"] == got["recv"]
    assert receive_all(kernel, 0.2) == ([b"other"] * 10 if exact else [])


def test_a_removed_flow_goes_to_the_kernel(net, rings):
    ring = rings()
    flow = f"4 udp {net.b.ip4} {PORT}"
    assert ring(f"flow add {flow}")["flow"] == 0
    assert ring(f"flow add {flow}")["error"] == "EALREADY"
    assert ring(f"flow del {flow}")["flow"] == 0
    assert ring(f"flow del {flow}")["error"] == "ENOENT"
    kernel, peer = net.b.socket(), net.a.socket()
    kernel.bind(("", PORT))
    peer.sendto(b"to the kernel", (net.b.ip4, PORT))
    assert kernel.recv(100) == b"to the kernel"


def test_the_last_of_several_flows_is_still_found(net, rings):
    ring = rings()
    for i in range(3):
        assert ring(f"flow add 4 udp {net.b.ip4} {PORT} {net.a.ip4} {5000 + i}")["flow"] == 0
    for i in (0, 2):
        assert ring(f"flow del 4 udp {net.b.ip4} {PORT} {net.a.ip4} {5000 + i}")["flow"] == 0
    kernel = net.b.socket()
    kernel.bind(("", PORT))
    for i in range(3):
        peer = net.a.socket()
        peer.bind(("", 5000 + i))
        peer.sendto(b"%d" % i, (net.b.ip4, PORT))
    assert ring("recv 3 500")["recv"] == 1
    assert receive_all(kernel, 0.2) == [b"0", b"2"]


def test_the_flow_dump_names_its_fields(net, rings):
    ring = rings(opened=False)
    pins = ring(f"open {net.b.dev}")["pins"]
    assert pins.endswith("/" + net.b.dev)
    ring(f"flow add 4 udp {net.b.ip4} {PORT}")
    dump = in_mounts_of(ring.pid, "bpftool", "map", "dump", "pinned", f"{pins}/flows")
    for word in ('"local_port": 9999', '"remote_port": 0', '"proto": 17', f'"pid": {ring.pid}'):
        assert word in dump.stdout, dump.stdout + dump.stderr


def test_an_orderly_close_leaves_nothing(net, rings):
    ring = rings(opened=False)
    pins = ring(f"open {net.b.dev}")["pins"]
    assert xdp_attached(net.b)
    assert in_mounts_of(ring.pid, "test", "-e", f"{pins}/flows").returncode == 0
    assert ring("close")["close"] == 0
    assert not xdp_attached(net.b)
    assert in_mounts_of(ring.pid, "test", "-e", pins).returncode != 0
    assert ring(f"open {net.b.dev}")["open"] == 0
    assert ring.end() == 0


def test_a_second_process_is_told_who_owns_the_queue(net, rings):
    first, second = rings(), rings(opened=False)
    assert second(f"open {net.b.dev}")["error"] == "EBUSY"
    assert f"queue 0 of {net.b.dev} belongs to process {first.pid}: sockets stay with the kernel" in second.log
    assert first("close")["close"] == 0
    # The kernel gives a queue back a moment after its socket is closed.
    wait_for(lambda: second(f"open {net.b.dev}").get("open") == 0, 5, "the queue that the first one has left")


def test_a_killed_owner_takes_no_packets_and_is_replaced(net, rings):
    ring = rings()
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    kernel, peer = net.b.socket(), net.a.socket()
    kernel.bind(("", PORT))
    ring.popen.kill()
    ring.popen.wait()
    assert xdp_attached(net.b), "the dead owner's program should still be there, or this tests nothing"

    def reaches_the_kernel():
        peer.sendto(b"x", (net.b.ip4, PORT))
        return bool(receive_all(kernel, 0.05))

    wait_for(reaches_the_kernel, 20, "a datagram reaches the kernel")
    again = rings()
    assert again(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    peer.sendto(b"y", (net.b.ip4, PORT))
    assert again("recv 1 1000")["recv"] == 1


def test_pins_of_the_dead_are_swept(net, make_net, library, rings):
    """Of an owner of the same interface, and of one in a namespace that nobody comes back to."""
    elsewhere = make_net()
    dead = [rings(opened=False, here=True), Ring(elsewhere.b, library, here=True)]
    pins = [pathlib.Path(r(f"open {net.b.dev}")["pins"]) for r in dead]
    assert all((p / "flows").exists() for p in pins) and pins[0] != pins[1]
    for ring in dead:
        ring.popen.kill()
        ring.popen.wait()
    assert all((p / "flows").exists() for p in pins)
    again = rings(opened=False, here=True)
    assert again(f"open {net.b.dev}")["pins"] == str(pins[0])
    assert not pins[1].parent.exists()
    dump = subprocess.run(["bpftool", "-j", "map", "dump", "pinned", pins[0] / "owner"], capture_output=True, text=True)
    assert f'"pid":{again.pid}' in dump.stdout.replace(" ", "")
    assert again("close")["close"] == 0
    assert not pins[0].parent.exists()


def test_a_child_that_closes_its_copy_takes_nothing_from_the_parent(net, rings):
    ring = rings()
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    assert ring("fork")["fork"] == 0
    peer = net.a.socket()
    peer.bind(("", 7777))
    peer.sendto(b"x", (net.b.ip4, PORT))
    assert ring("recv 1 1000")["recv"] == 1
    assert ring(f"send 1 64 {mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777") == {"send": 1, "error": ""}
    assert len(receive_all(peer)) == 1


def test_a_foreign_program_is_respected(net, rings, tmp_path):
    program = tmp_path / "foreign.o"
    source = '__attribute__((section("xdp"), used)) int passes(void *ctx) { return 2; }'  # XDP_PASS
    bpf_object(program, source, "-g")
    ip("-n", net.b.name, "link", "set", net.b.dev, "xdpgeneric", "obj", program, "sec", "xdp")
    before = re.search(r"prog/xdp id (\d+)", ip("-n", net.b.name, "link", "show", net.b.dev)).group(1)
    ring = rings(opened=False)
    assert ring(f"open {net.b.dev}")["error"] == "EEXIST"
    assert len(ring.log.splitlines()) == 1 and "is attached: sockets stay with the kernel" in ring.log
    after = re.search(r"prog/xdp id (\d+)", ip("-n", net.b.name, "link", "show", net.b.dev)).group(1)
    assert before == after


def test_a_frame_above_the_mtu_is_never_posted(net, rings):
    ring = rings()
    peer = net.a.socket()
    peer.bind(("", 7777))
    to = f"{mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777"
    assert ring(f"send 1 1514 {to}") == {"send": 1, "error": ""}
    assert ring(f"send 1 1515 {to}") == {"send": 0, "error": "EMSGSIZE"}
    assert ring("mtu 1000")["mtu"] == 0
    assert ring(f"send 1 1015 {to}") == {"send": 0, "error": "EMSGSIZE"}
    assert ring("counters")["tx_drop_oversize"] == 2
    assert [len(d) for d in receive_all(peer)] == [1514 - 42]


def test_a_burst_is_sent_whole_with_one_call_for_32_frames(net, rings):
    ring = rings()
    peer = net.a.socket()
    peer.setsockopt(socket.SOL_SOCKET, 33, 4 << 20)  # SO_RCVBUFFORCE
    peer.bind(("", 7777))
    assert ring(f"send 3200 106 {mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777") == {"send": 3200, "error": ""}
    got = receive_all(peer)
    assert len(got) == 3200 and set(map(len, got)) == {64}
    counters = ring("counters")
    assert counters["tx_packets"] == 3200 and 100 <= counters["kicks"] <= 130


@pytest.mark.multi_buffer
def test_a_gso_burst_is_told_from_a_datagram(net, rings):
    ring = rings()
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    peer = net.a.socket()
    peer.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1000)
    for bursts, payload in ((0, b"single"), (1, b"t" * 9500), (0, b"x" * 1000), (1, b"y" * 1001), (0, b"z")):
        peer.sendto(payload, (net.b.ip4, PORT))
        got = ring("recv 1 2000")
        assert (got["recv"], got["bursts"], got["bytes"]) == (1, bursts, 42 + len(payload))
    counters = ring("counters")
    assert (counters["rx_packets"], counters["rx_gso_frames"], counters["rx_drop_invalid"]) == (3 + 10 + 2, 2, 0)


@pytest.mark.multi_buffer
@pytest.mark.skipif(KERNEL < (6, 16), reason="the kernel's BTF can be read there, and not mapped")
def test_a_ring_opens_without_a_copy_of_the_kernels_types(net, rings):
    """5 MB of them, of which the steering program needs eight numbers."""
    def read(ring):
        return int(re.search(r"rchar: (\d+)", pathlib.Path(f"/proc/{ring.pid}/io").read_text())[1])

    ring = rings(opened=False, env={"VMA_TRACELEVEL": "DEBUG"})
    wait_for(lambda: "ring_test" in os.readlink(f"/proc/{ring.pid}/exe"))
    before = read(ring)
    assert ring(f"open {net.b.dev}")["open"] == 0
    size = os.stat("/sys/kernel/btf/vmlinux").st_size
    print(f"{read(ring) - before} bytes read of all files, the kernel's types are {size}")
    assert read(ring) - before < size / 4
    assert "tried again without casts" not in ring.log


def test_send_gso_delivers_each_datagram(net, rings):
    ring = rings()
    peer = net.a.socket()
    peer.bind(("", 7777))
    to = f"{mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777"
    assert ring(f"gso 9500 1000 {to}")["gso"] == 0
    got = receive_all(peer)
    assert got == [bytes([i]) * 1000 for i in range(9)] + [bytes([9]) * 500]
    assert ring(f"gso 800 1000 {to}")["gso"] == 0, "a burst of one datagram"
    assert [len(d) for d in receive_all(peer)] == [800]
    counters = ring("counters")
    assert (counters["tx_gso_frames"], counters["tx_gso_packets"], counters["tx_packets"]) == (2, 11, 0)


@pytest.mark.multi_buffer
def test_the_kernel_cuts_for_a_device_that_cannot(net, rings, tmp_path):
    """A native XDP program at the peer takes the segmentation away from the veth."""
    ring = rings()
    passing = tmp_path / "passing.o"
    source = '__attribute__((section("xdp"), used)) int passing(void *ctx) { return 2; }'
    bpf_object(passing, source)
    ip("-n", net.a.name, "link", "set", "dev", net.a.dev, "xdpdrv", "obj", passing, "sec", "xdp")
    burst = f"gso 9500 1000 {mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777"
    peer = net.a.socket()
    peer.bind(("", 7777))
    assert [ring(burst)["error"] for _ in range(4)] == ["ENOBUFS"] * 4
    for _ in range(3):
        assert ring(burst)["gso"] == 0
        assert receive_all(peer) == [bytes([i]) * 1000 for i in range(9)] + [bytes([9]) * 500]
    ip("-n", net.a.name, "link", "set", "dev", net.a.dev, "xdpdrv", "off")
    assert ring(burst)["gso"] == 0
    assert ring("counters")["tx_gso_frames"] == 4


@pytest.mark.multi_buffer
def test_a_tcp_superframe_comes_as_one_chain(net, rings):
    ring = rings()
    assert ring(f"flow add 4 tcp {net.b.ip4} 2222")["flow"] == 0
    with net.a.entered():
        raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    raw.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    raw.bind((net.a.dev, 0))
    source, dest = socket.inet_aton(net.a.ip4), socket.inet_aton(net.b.ip4)
    size = 20000
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40 + size, 0, 0, 64, 6, 0, source, dest)
    total = sum(struct.unpack("!10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + head[12:]
    tcp = struct.pack("!HHIIBBHHH", 1111, 2222, 1, 1, 0x50, 0x10, 1000, 0, 0)
    vnet = struct.pack("<BBHHHH", 1, 1, 54, 1448, 34, 16)
    mac = bytes.fromhex(mac_of(net.b).replace(":", ""))
    raw.send(vnet + mac + b"\2" * 6 + b"\x08\x00" + head + tcp + b"d" * size)
    got = ring("recv 1 2000")
    assert (got["recv"], got["bytes"], got["bad"]) == (1, 54 + size, 0)
    assert got["fragments"] == -(-(54 + size) // 3840)


def test_unread_frames_do_not_starve_the_ring(net, rings):
    ring = rings()
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    peer = net.a.socket()
    kept = 0
    for _ in range(60):  # 6000 frames, three times what the UMEM holds
        for _ in range(100):
            peer.sendto(b"z" * 64, (net.b.ip4, PORT))
        got = ring("hold 100 2000")
        assert got["recv"] == 100
        kept += got["heap"]
    assert kept > 4000
    assert ring("counters")["rx_drop_no_buf"] == 0
    assert ring("drop")["drop"] == 6000
    for _ in range(100):
        peer.sendto(b"z" * 64, (net.b.ip4, PORT))
    got = ring("recv 100 2000")
    assert (got["recv"], got["heap"]) == (100, 0)


def test_without_copies_the_reserve_is_kept_and_drops_are_counted(net, rings):
    ring = rings(env={"VMA_RX_BUFS": "100"})
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    peer = net.a.socket()
    kept = 0
    for _ in range(30):
        for _ in range(100):
            peer.sendto(b"z" * 64, (net.b.ip4, PORT))
        kept += ring("hold 100 300")["recv"]
    dropped = ring("counters")["rx_drop_no_buf"]
    assert kept + dropped == 3000
    assert 2300 <= kept <= 2600, f"{kept} kept, {dropped} dropped"


@pytest.mark.parametrize("queues", [pytest.param(n, marks=pytest.mark.net(queues=n)) for n in (4, 40)])
def test_every_queue_is_served(net, rings, queues):
    ring = rings(opened=False)
    assert ring(f"open {net.b.dev}")["queues"] == queues
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    for _ in range(64):  # the kernel spreads them by source port; no queue's ring overflows
        peer = net.a.socket()
        for _ in range(3):
            peer.sendto(b"q", (net.b.ip4, PORT))
    assert ring("recv 192 3000")["recv"] == 192


@pytest.mark.net(queues=40)
def test_one_of_many_queues_takes_a_burst(net, rings):
    """All of it comes by one queue, and nobody reads meanwhile."""
    ring = rings(opened=False)
    assert ring(f"open {net.b.dev}")["queues"] == 40
    assert ring(f"flow add 4 udp {net.b.ip4} {PORT}")["flow"] == 0
    peer = net.a.socket()
    for _ in range(200):
        peer.sendto(b"q", (net.b.ip4, PORT))
    got = ring("recv 200 3000")["recv"]
    print(f"{got} of 200")
    assert got == 200


def test_two_threads_open_two_interfaces_at_once(net, rings):
    ip("-n", net.b.name, "link", "add", "other0", "type", "veth", "peer", "name", "other1")
    ip("-n", net.b.name, "link", "set", "other0", "up")
    ring = rings(opened=False)
    for _ in range(5):
        assert ring(f"together {net.b.dev} other0") == {"first": 0, "second": 0}, ring.log


def test_a_link_that_was_down_sends_again(net, rings):
    ring = rings()
    peer = net.a.socket()
    peer.bind(("", 7777))
    to = f"{mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777"
    ip("-n", net.b.name, "link", "set", net.b.dev, "down")
    for _ in range(100):  # more than the transmit ring holds
        assert ring(f"send 32 64 {to}")["error"] in ("ENETDOWN", "ENOBUFS", "")
    ip("-n", net.b.name, "link", "set", net.b.dev, "up")
    wait_for(lambda: "LOWER_UP" in ip("-n", net.a.name, "link", "show", net.a.dev))
    net.neighbours()
    ring(f"send 1 64 {to}")
    receive_all(peer)
    assert ring(f"send 1 99 {to}") == {"send": 1, "error": ""}
    assert [len(d) for d in receive_all(peer)] == [99 - 42]


def test_an_interface_may_vanish_under_the_ring(net, rings):
    ring = rings()
    ring(f"flow add 4 udp {net.b.ip4} {PORT}")
    to = f"{mac_of(net.a)} {net.b.ip4} {net.a.ip4} {PORT} 7777"
    ip("-n", net.b.name, "link", "del", net.b.dev)
    assert ring(f"send 1 64 {to}")["error"] in ("ENXIO", "ENETDOWN", "ENODEV")
    assert ring("recv 1 50")["recv"] == 0
    assert ring("close")["close"] == 0
    assert ring.end() == 0


def test_loopback_is_the_kernels_unless_asked_for(net, rings):
    ring = rings(opened=False)
    assert ring("open lo")["error"] == "EOPNOTSUPP"
    ring = rings(opened=False, env={"VMA_OFFLOAD_LOOPBACK": "1"})
    assert ring("open lo")["error"] == "EOPNOTSUPP"
    for name in ("route_localnet", "accept_local"):
        assert f"needs net.ipv4.conf.lo.{name} = 1" in ring.log
    net.b.run("sysctl -qw net.ipv4.conf.lo.route_localnet=1 net.ipv4.conf.lo.accept_local=1")
    assert ring("open lo")["open"] == 0
    assert ring(f"flow add 4 udp 127.0.0.1 {PORT}")["flow"] == 0
    kernel = net.b.socket()
    kernel.sendto(b"over lo", ("127.0.0.1", PORT))
    assert ring("recv 1 1000")["recv"] == 1


def test_without_privileges_one_line_says_what_is_missing_and_a_box_the_remedy(net, rings):
    ring = rings(opened=False, unprivileged=True)
    assert ring(f"open {net.b.dev}")["error"] == "EPERM"
    line, *box = ring.log.splitlines()
    assert "(missing: CAP_NET_RAW)" in line
    assert all(re.match(r" VMA WARNING: \*", text) for text in box), ring.log
    assert "CAP_NET_RAW" in "".join(box)


def test_no_ring_for_a_device_without_ethernet_header(net, rings):
    net.b.run("ip tuntap add dev tun9 mode tun")
    ring = rings(opened=False)
    assert ring("open tun9")["error"] == "EOPNOTSUPP"
    assert rings(opened=False, env={"VMA_RING_TYPE": "none"})(f"open {net.b.dev}")["error"] == "EOPNOTSUPP"
