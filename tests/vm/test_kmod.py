# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The kernel module as a program meets it: calls, mappings, sysfs, fork, exec and death."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess

import pytest

from netns import ROOT, wait_for
from vma_ko import SYSFS, insmod, rmmod, say, sums

# include/vma/kmod.h
SETUP = struct.Struct("=IIII2QQQQQ")
KEY = struct.Struct("=16s16sHHB3s")
CONN = struct.Struct("=iI40sII")
UNCONN = struct.Struct("=II")
REGION = struct.Struct("=QIiQQQ")
RST, FALLBACK = 1, 2
CONTIG, HUGE, GIGA = 1, 2, 3
MAP_STATS, MAP_RING = 1 << 32, 2 << 32


def ioc(direction, nr, size):
    return direction << 30 | size << 16 | 0xB7 << 8 | nr


IOC_SETUP, IOC_CONN = ioc(3, 0, SETUP.size), ioc(3, 1, CONN.size)
IOC_UNCONN, IOC_REGION = ioc(1, 2, UNCONN.size), ioc(3, 3, REGION.size)
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def call(fd, number, *fields, layout):
    """The answer's fields; OSError."""
    data = bytearray(layout.pack(*fields))
    fcntl.ioctl(fd, number, data)
    return layout.unpack(data)


class Device:
    """One process's session."""

    left = []  # what a test has not closed, mappings too: by what closes them

    def __init__(self, sockets=0, conns=0, ring=0):
        self.fd = os.open("/dev/vma", os.O_RDWR)
        self.left.append(self.close)
        answer = call(self.fd, IOC_SETUP, 1, sockets, conns, ring, 0, 0, 0, 0, 0, 0, layout=SETUP)
        self.stats_bytes, self.conns_bytes, self.ring_bytes = answer[-3:]

    def conn(self, fd, proto, local, remote, flags):
        def side(address):
            return socket.inet_pton(socket.AF_INET6, address if ":" in address else "::ffff:" + address)

        key = KEY.pack(side(local[0]), side(remote[0]), local[1], remote[1], proto, b"")
        return call(self.fd, IOC_CONN, fd, flags, key, 0, 0, layout=CONN)[3]

    def region(self, size, kind=CONTIG, node=-1):
        size, _, _, offset, block, _ = call(self.fd, IOC_REGION, size, kind, node, 0, 0, 0, layout=REGION)
        return size, offset, block

    def map(self, size, offset):
        """Not Python's mmap(), which duplicates the fd: the first close() of a duplicate ends the session."""
        at = LIBC.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, self.fd, offset)
        if at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")

        def unmap(*_):
            LIBC.munmap(at, size)
            self.left.remove(unmap)

        self.left.append(unmap)
        return type("Mapping", (ctypes.c_char * size,), {"close": unmap}).from_address(at)

    def close(self):
        os.close(self.fd)
        self.left.remove(self.close)


@pytest.fixture(autouse=True)
def devices(vma_ko):
    """A test that fails leaves nothing that would keep the module in, and fail the next one."""
    yield
    while Device.left:
        Device.left[-1]()


def fails(error, function, *args, **more):
    with pytest.raises(OSError) as e:
        function(*args, **more)
    assert e.value.errno == error, e.value


def child(function):
    """Forks; the child's pid. function's exception or return ends it."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function()
        status = 0
    finally:
        os._exit(status)


def ended_well(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_region_of_one_gib():
    """Contiguous, aligned, zeroed; and everybody's again when it goes. First here: memory that is new has such a range."""
    d = Device()
    before = os.sysconf("SC_AVPHYS_PAGES")
    size, offset, block = d.region(1, GIGA)
    assert size == block == 1 << 30
    assert sums()["region_bytes"] == size
    pages = d.map(size, offset)
    d.close()
    with open("/proc/self/pagemap", "rb", 0) as f:
        f.seek(ctypes.addressof(pages) // 4096 * 8)
        frames = struct.unpack(f"{size // 4096}Q", f.read(size // 4096 * 8))
    first = frames[0] & (1 << 55) - 1
    assert first and first % (size // 4096) == 0
    assert all(frame & (1 << 55) - 1 == first + i for i, frame in enumerate(frames))
    for at in (0, size // 3, size - 4096):
        assert pages[at:at + 4096] == bytes(4096)
        pages[at] = 1
    pages.close()
    assert sums()["regions"] == 0
    assert os.sysconf("SC_AVPHYS_PAGES") > before - size // 4096 // 2

    def limited():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (512 << 20, 512 << 20))
        os.setresuid(65534, 65534, 65534)
        fails(errno.ENOMEM, Device().region, 1, GIGA)

    os.chmod("/dev/vma", 0o666)
    assert ended_well(child(limited))


def test_it_can_be_unloaded_and_loaded_again():
    rmmod()
    assert not SYSFS.exists() and not os.path.exists("/dev/vma")
    insmod()
    layout = re.search(r"^#define VMA_STATS_VERSION (\d+)u$", (ROOT / "include/vma/stats.h").read_text(), re.M)[1]
    assert (SYSFS / "version").read_text().split()[1:] == ["abi", "1", "stats", layout]


def test_a_process_opens_it_once_at_a_time():
    d = Device(conns=1)
    fails(errno.EBUSY, os.open, "/dev/vma", os.O_RDWR)
    assert (SYSFS / "process" / str(os.getpid())).is_dir()
    d.close()
    assert not (SYSFS / "process" / str(os.getpid())).exists()
    Device().close()


def test_a_forked_child_has_no_part_in_it():
    d = Device(sockets=1, conns=1)
    pages = d.map(d.stats_bytes, MAP_STATS)

    def inside():
        fails(errno.EPERM, call, d.fd, IOC_UNCONN, 0, 0, layout=UNCONN)
        fails(errno.EPERM, d.map, 4096, MAP_STATS)
        d.close()
        own = Device(conns=1)
        own.close()

    assert ended_well(child(inside))
    assert (SYSFS / "process" / str(os.getpid())).is_dir()
    # The mapping is not there: touching it is a fault.
    pid = child(lambda: pages[0])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
    pages.close()
    d.close()


def test_the_statistics_pages_are_read_however_they_are_written():
    d = Device(sockets=8)
    pages = d.map(d.stats_bytes, MAP_STATS)
    mine = SYSFS / "process" / str(os.getpid())
    for seed in range(20):
        pages[:] = random.Random(seed).randbytes(d.stats_bytes) if seed else b"\xff" * d.stats_bytes
        assert (mine / "pages").read_bytes() == pages[:]
        sockets, rings = (mine / "sockets").read_bytes(), (mine / "rings").read_bytes()
        assert len(sockets) % 512 == 0 and len(rings) % 896 == 0
        assert all(line.startswith(b"fd ") for line in sockets.splitlines())
        assert len(sockets.splitlines()) == len(sockets) // 512
        sums(), sums(mine / "stats")
    fails(errno.EINVAL, d.map, d.stats_bytes + 4096, MAP_STATS)
    pages.close()
    d.close()


@pytest.mark.parametrize("death", ["kill", "segv", "oom", "exit", "exec", "close"])
def test_a_process_that_ends_resets_its_connections(death):
    ready, tell = os.pipe()

    def inside():
        d = Device(conns=64)
        slots = d.map(d.conns_bytes, 0)
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        for i in range(40):
            slot = d.conn(s.fileno(), socket.IPPROTO_TCP, s.getsockname(), ("127.0.0.2", 1000 + i), RST)
            slots[slot * 16:slot * 16 + 12] = struct.pack("=III", 1, 2, i % 4 != 0)
        call(d.fd, IOC_UNCONN, 39, 0, layout=UNCONN)
        # One that keeps the fd must not keep the connections.
        keeper = os.fork()
        if not keeper:
            signal.pause()
        if death == "oom":
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
        os.write(tell, struct.pack("=i", keeper))
        signal.alarm(60)
        if death == "segv":
            ctypes.string_at(0)
        elif death == "exec":
            os.execv("/bin/sleep", ["sleep", "60"])
        elif death == "close":
            d.close()
            signal.pause()
        elif death in ("kill", "oom"):
            signal.pause()

    before = sums()
    pid = child(inside)
    keeper, = struct.unpack("=i", os.read(ready, 4))
    os.close(ready)
    os.close(tell)
    if death == "kill":
        os.kill(pid, signal.SIGKILL)
    if death == "oom":
        pathlib.Path("/proc/sysrq-trigger").write_text("f")
    try:
        # A worker sends them while the process is still on its way out.
        wait_for(lambda: sums()["resets_sent"] == before["resets_sent"] + 29 and sums()["processes"] == 0, 30, what=sums)
        assert sums()["conns"] == 0
    finally:
        for p in (pid, keeper):
            try:
                os.kill(p, signal.SIGKILL)
            except ProcessLookupError:
                pass
        os.waitpid(pid, 0)


def test_what_is_not_the_callers_is_refused():
    os.chmod("/dev/vma", 0o666)
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    there = other.getsockname()

    def inside():
        os.setresuid(65534, 65534, 65534)
        d = Device(conns=4, ring=65536)
        s = socket.socket()
        s.bind(("127.0.0.1", 0))
        remote = ("127.0.0.2", 9)
        tcp, udp = socket.IPPROTO_TCP, socket.IPPROTO_UDP
        fails(errno.EPERM, d.conn, s.fileno(), tcp, there, remote, RST)
        fails(errno.EPERM, d.conn, s.fileno(), tcp, ("127.0.0.3", s.getsockname()[1]), remote, RST)
        fails(errno.EPROTOTYPE, d.conn, s.fileno(), udp, s.getsockname(), remote, FALLBACK)
        fails(errno.ENOTSOCK, d.conn, d.fd, tcp, s.getsockname(), remote, RST)
        fails(errno.EBADF, d.conn, 999, tcp, s.getsockname(), remote, RST)
        assert d.conn(s.fileno(), tcp, s.getsockname(), remote, RST) == 0
        fails(errno.EADDRINUSE, d.conn, s.fileno(), tcp, s.getsockname(), remote, RST)
        # A connection of the kernel's.
        l = socket.create_server(("127.0.0.1", 0))
        c = socket.create_connection(l.getsockname())
        fails(errno.EISCONN, d.conn, c.fileno(), tcp, c.getsockname(), l.getsockname(), RST)
        fails(errno.EADDRINUSE, d.conn, l.fileno(), tcp, l.getsockname(), c.getsockname(), RST)

    assert ended_well(child(inside))


def test_another_namespaces_socket_is_refused():
    s = socket.socket()
    s.bind(("127.0.0.1", 0))

    def inside():
        assert LIBC.unshare(0x40000000) == 0  # CLONE_NEWNET
        d = Device(conns=1)
        fails(errno.EPERM, d.conn, s.fileno(), socket.IPPROTO_TCP, s.getsockname(), ("127.0.0.2", 9), RST)

    assert ended_well(child(inside))


def test_regions_live_as_long_as_their_mappings():
    d = Device()
    for kind, size in ((CONTIG, 5 << 20), (HUGE, 3 << 20), (CONTIG, 1)):
        size, offset, block = d.region(size, kind)
        assert size % block == 0 and block >= 4096
        first, second = d.map(size, offset), d.map(4096, offset)
        assert first[:] == bytes(size)
        first[:3] = b"abc"
        assert second[:3] == b"abc"
        first.close()
        assert sums()["regions"] == 1 and sums()["region_bytes"] == size
        second.close()
        assert sums()["regions"] == 0 and sums()["region_bytes"] == 0
        fails(errno.EINVAL, d.map, 4096, offset)
    # One that outlives the session, one that is never mapped.
    size, offset, _ = d.region(4096)
    d.region(4096)
    last = d.map(size, offset)
    d.close()
    assert sums()["regions"] == 1
    last[0] = 1
    last.close()
    assert sums()["regions"] == 0


def test_regions_are_of_the_node_that_is_named():
    d = Device()
    size, offset, _ = d.region(1 << 20, node=0)
    pages = d.map(size, offset)
    pages[0] = 1
    here = f"{ctypes.addressof(pages):x} "
    line, = [m for m in pathlib.Path("/proc/self/numa_maps").read_text().splitlines() if m.startswith(here)]
    assert " N0=" in line and " N1=" not in line
    pages.close()
    for node in (-2, 5, 1 << 30):
        fails(errno.EINVAL, d.region, 4096, node=node)
    d.close()


def test_a_32_bit_program_makes_the_same_calls(library):
    assert subprocess.check_output([library.build / "tests/vm/kmod_compat"], text=True) == "as 64 bits\n"


def test_locked_memory_is_limited():
    os.chmod("/dev/vma", 0o666)

    def inside():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (4 << 20, 4 << 20))
        os.setresuid(65534, 65534, 65534)
        d = Device()
        fails(errno.ENOMEM, d.region, 6 << 20, HUGE)
        size, offset, _ = d.region(4 << 20, HUGE)
        fails(errno.ENOMEM, d.region, 4096)
        d.map(size, offset).close()
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        fails(errno.EPERM, d.region, 4096)

    assert ended_well(child(inside))
    assert sums()["regions"] == 0


def nft(family, kind, flags=0, *attributes):
    """A message of nf_tables: attributes are (number, bytes), or (number, [attributes])."""
    def packed(attribute):
        number, value = attribute
        if isinstance(value, list):
            number, value = number | 0x8000, b"".join(map(packed, value))
        return struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)
    body = struct.pack("=BBH", family, 0, 0) + b"".join(map(packed, attributes))
    return struct.pack("=IHHII", 16 + len(body), 10 << 8 | kind, 1 | flags, 1, 0) + body


def nft_do(message):
    """One message, which must succeed (nf_tables takes batches only)."""
    ends = [struct.pack("=IHHIIBB", 20, kind, 1, 1, 0, 0, 0) + struct.pack(">H", 10) for kind in (16, 17)]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12) as s:
        s.settimeout(10)
        s.send(ends[0] + message + ends[1])
        _, kind, _, _, _, error = struct.unpack_from("=IHHIIi", s.recv(8192))
    assert (kind, error) == (2, 0), f"nf_tables: {os.strerror(-error)}"


@contextlib.contextmanager
def input_drops(family):
    """A firewall that lets nothing in: as a stateful one does with what belongs to no connection that the kernel knows."""
    number = 2 if family == socket.AF_INET else 10  # NFPROTO_IPV4, NFPROTO_IPV6
    name, ack, create = b"vma-it\0", 4, 0x400
    subprocess.run(["modprobe", "nf_tables"], check=True)
    nft_do(nft(number, 0, create | ack, (1, name)))
    try:
        # An input chain of priority "filter" whose policy is to drop.
        hook = [(1, struct.pack(">I", 1)), (2, struct.pack(">i", 0))]
        nft_do(nft(number, 3, create | ack, (1, name), (3, b"in\0"), (4, hook), (5, struct.pack(">I", 0)), (7, b"filter\0")))
        yield
    finally:
        nft_do(nft(number, 2, ack, (1, name)))


@pytest.mark.parametrize("firewall", [contextlib.nullcontext, input_drops], ids=["no firewall", "firewall"])
@pytest.mark.parametrize("family, here", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_fragments_arrive_in_the_ring(family, here, firewall):
    head = 28 if family == socket.AF_INET else 48
    d = Device(conns=1, ring=65536)
    ring = d.map(d.ring_bytes, MAP_RING)
    subprocess.run(["ip", "link", "set", "lo", "mtu", "1500"], check=True)
    s, c = (socket.socket(family, socket.SOCK_DGRAM) for _ in range(2))
    s.bind((here, 0))
    s.setblocking(False)
    d.conn(s.fileno(), socket.IPPROTO_UDP, s.getsockname()[:2], ("::", 0), FALLBACK)
    data = random.Random(1).randbytes(6000)
    with firewall(family):
        c.sendto(data, s.getsockname())
        wait_for(lambda: ring[:4] != bytes(4), what="the packet")
    length, slot, _, _, _ = struct.unpack_from("=IIIHH", ring, 4096)
    assert length == 6000 + head and slot == 0
    assert ring[4096 + 16 + head:4096 + 16 + head + 6000] == data
    fails(errno.EAGAIN, s.recv, 1)
    assert sums()["fallback_packets"] == 1
    ring.close()
    d.close()
    subprocess.run(["ip", "link", "set", "lo", "mtu", "65536"], check=True)


def test_hostile_programs_get_errors(library):
    """VMA_FUZZ_SECONDS and VMA_FUZZ_SEED: for how long (30), and a run that was."""
    os.chmod("/dev/vma", 0o666)
    seconds = os.environ.get("VMA_FUZZ_SECONDS", "30")
    seed = os.environ.get("VMA_FUZZ_SEED", str(random.randrange(1 << 30)))
    out = subprocess.run([library.build / "tests/vm/kmod_fuzz", seconds, seed], stdout=subprocess.PIPE, text=True, check=True).stdout
    say(f"kmod_fuzz {seconds} {seed}: " + "; ".join(out.splitlines()))
    done = {name: (int(good), int(bad)) for name, good, bad in re.findall(r"(\w+): (\d+) done, (\d+) failed", out)}
    assert done["stolen"][0] == 0 and all(bad for _, bad in done.values()), out
    assert all(good for name, (good, _) in done.items() if name not in ("stolen", "junk")), out
    none = ("conns", "processes", "regions", "region_bytes")
    wait_for(lambda: not any(sums()[name] for name in none), 30, what=sums)
