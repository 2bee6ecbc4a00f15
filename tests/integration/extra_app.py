# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Extra API for udp_app.py: mellanox/vma_extra.h in ctypes, and what tests do with it in one word.

A callback's verdict is DROP, RECV or HOLD; callback(s, fn) calls fn(data, info), where info is a dictionary.
"""

import ctypes
import socket
import struct
import time

from udp_app import LIBC, Iovec, checked

SO_VMA_GET_API = 2800
ZCOPY_FORCE, ZCOPY = 0x01000000, 0x00040000
DROP, RECV, HOLD = 0, 1, 2


class Timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


class Info(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("struct_sz", ctypes.c_size_t), ("packet_id", ctypes.c_void_p), ("src", ctypes.c_void_p),
                ("dst", ctypes.c_void_p), ("payload_sz", ctypes.c_size_t), ("ready_packets", ctypes.c_uint32),
                ("ready_bytes", ctypes.c_uint32), ("hw", Timespec), ("sw", Timespec)]


class Packet(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("packet_id", ctypes.c_void_p), ("sz_iov", ctypes.c_size_t)]


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(Iovec), ctypes.POINTER(Info),
                            ctypes.c_void_p)
_INT, _PTR, _SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t


def _fn(*arguments):
    return ctypes.CFUNCTYPE(_INT, *arguments, use_errno=True)


class Api(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("register_recv_callback", _fn(_INT, _PTR, _PTR)),
                ("recvfrom_zcopy", _fn(_INT, _PTR, _SIZE, _PTR, _PTR, _PTR)),
                ("free_packets", _fn(_INT, _PTR, _SIZE)),
                ("add_conf_rule", _fn(ctypes.c_char_p)),
                ("thread_offload", _fn(_INT, ctypes.c_ulong)),
                ("socketxtreme_poll", _fn(_INT, _PTR, ctypes.c_uint, _INT)),
                ("get_socket_rings_num", _fn(_INT)),
                ("get_socket_rings_fds", _fn(_INT, _PTR, _INT)),
                ("get_socket_tx_ring_fd", _fn(_INT, _PTR, ctypes.c_uint32)),
                ("socketxtreme_free_vma_packets", _fn(_PTR, _INT)),
                ("socketxtreme_ref_vma_buff", _fn(_PTR)),
                ("socketxtreme_free_vma_buff", _fn(_PTR)),
                ("dump_fd_stats", _fn(_INT, _INT)),
                ("vma_add_ring_profile", _fn(_PTR, _PTR)),
                ("get_socket_network_header", _fn(_INT, _PTR, _PTR)),
                ("get_ring_direct_descriptors", _fn(_INT, _PTR)),
                ("register_memory_on_ring", _fn(_INT, _PTR, _SIZE, _PTR)),
                ("deregister_memory_on_ring", _fn(_INT, _PTR, _SIZE)),
                ("vma_modify_ring", _fn(_PTR)),
                ("mask", ctypes.c_uint64),
                ("ioctl", _fn(_PTR, _SIZE))]


def get_api(fd=-1, room=8):
    """(result, errno, the table or None, the length that was told) of getsockopt()."""
    table, length = ctypes.c_void_p(), ctypes.c_uint32(room)
    ctypes.set_errno(0)
    r = LIBC.getsockopt(fd, socket.SOL_SOCKET, SO_VMA_GET_API, ctypes.byref(table), ctypes.byref(length))
    return r, ctypes.get_errno(), Api.from_address(table.value) if table.value else None, length.value


API = get_api()[2]


def api(name, *args):
    """A member by name; raises OSError."""
    return checked(getattr(API, name), *args)


def address(where):
    """(host, port) of a sockaddr in memory."""
    family = struct.unpack("=H", ctypes.string_at(where, 2))[0]
    if family == socket.AF_INET6:
        raw = ctypes.string_at(where, 28)
        return socket.inet_ntop(family, raw[8:24]), struct.unpack("!H", raw[2:4])[0]
    raw = ctypes.string_at(where, 16)
    return socket.inet_ntoa(raw[4:8]), struct.unpack("!H", raw[2:4])[0]


def gather(iov, n):
    return b"".join(ctypes.string_at(iov[i].base, iov[i].len) for i in range(n))


callbacks = {}  # of each number: what ctypes must not forget
failures = []  # what a callback raised


def callback(s, fn, number=None):
    """Registers fn(data, info); None: no callback."""
    fd = s.fileno() if number is None else number

    def called(at, n, iov, info, context):
        i = info.contents
        try:
            return fn(gather(iov, n), {
                "fd": at, "pieces": n, "id": i.packet_id, "src": address(i.src), "dst": address(i.dst),
                "size": i.payload_sz, "struct": i.struct_sz, "ready": (i.ready_packets, i.ready_bytes),
                "sw": i.sw.sec + i.sw.nsec / 1e9, "hw": i.hw.sec + i.hw.nsec / 1e9, "context": context,
                "iov": [(iov[k].base, iov[k].len) for k in range(n)]})
        except Exception as e:
            failures.append(repr(e))
            return DROP

    kept = CALLBACK(called) if fn else None
    r = api("register_recv_callback", fd, ctypes.cast(kept, ctypes.c_void_p) if kept else None, 4711)
    callbacks[fd] = callbacks.get(fd, []) + [kept]
    return r


def zcopy(s, flags=0, room=4096, number=None):
    """(bytes, id, address, pieces) of a packet; (bytes, None, address, 0) of a copy."""
    buf, given = ctypes.create_string_buffer(max(room, 1)), ctypes.c_int(flags)
    name, length = ctypes.create_string_buffer(128), ctypes.c_uint32(128)
    fd = s.fileno() if number is None else number
    n = api("recvfrom_zcopy", fd, buf, room, ctypes.byref(given), name, ctypes.byref(length))
    who = address(ctypes.addressof(name)) if length.value and n else None
    if not given.value & ZCOPY:
        return buf.raw[:min(n, room)], None, who, 0
    packets, packet, pieces = struct.unpack("=QQQ", buf.raw[:24])
    assert packets == 1
    iov = (Iovec * pieces).from_buffer(buf, 24)
    data = gather(iov, pieces)
    assert len(data) == n
    return data, packet, who, pieces


def free(s, *ids, number=None):
    packets = (Packet * len(ids))(*[Packet(i, 0) for i in ids])
    return api("free_packets", s.fileno() if number is None else number, packets, len(ids))


def ring_fds(s, room=16):
    fds = (ctypes.c_int * room)()
    return list(fds[:api("get_socket_rings_fds", s.fileno(), fds, room)])


def header(s, room=64, ask=False):
    buf, length = ctypes.create_string_buffer(64), ctypes.c_uint16(room)
    api("get_socket_network_header", s.fileno(), None if ask else buf, ctypes.byref(length))
    return length.value if ask else buf.raw[:length.value]


# --- a ring of one's own

PER_INTERFACE, PER_SOCKET, PER_USER, PER_THREAD = 0, 10, 11, 20
PROFILE, USER, INGRESS, ENGRESS = 1, 2, 4, 8
SO_VMA_RING_ALLOC_LOGIC = 2810
RING_PACKET, RING_EXTERNAL_MEM = 0, 1


def ring_profile(kind=RING_PACKET):
    what, key = struct.pack("=III", 0, kind, 0), ctypes.c_int(-1)
    api("vma_add_ring_profile", what, ctypes.byref(key))
    return key.value


def ring_logic(s, logic, profile=None, user=None, ways=INGRESS | ENGRESS, size=20):
    mask = ways | (PROFILE if profile is not None else 0) | (USER if user is not None else 0)
    said = struct.pack("=IIIII", mask, logic, profile or 0, user or 0, bool(ways & INGRESS) | bool(ways & ENGRESS) << 1)
    s.setsockopt(socket.SOL_SOCKET, SO_VMA_RING_ALLOC_LOGIC, said[:size])


# --- SocketXtreme

PACKET, NEW = 1 << 32, 1 << 33
SO_VMA_USER_DATA = 2801


class Buff(ctypes.Structure):
    _fields_ = [("next", ctypes.c_void_p), ("payload", ctypes.c_void_p), ("len", ctypes.c_uint16)]


class Desc(ctypes.Structure):
    _fields_ = [("num_bufs", ctypes.c_size_t), ("total_len", ctypes.c_uint16), ("buff_lst", ctypes.c_void_p), ("hw", Timespec)]


class Completion(ctypes.Structure):
    _fields_ = [("packet", Desc), ("events", ctypes.c_uint64), ("user_data", ctypes.c_uint64), ("src", ctypes.c_uint8 * 16),
                ("listen_fd", ctypes.c_int)]


def chain(desc):
    """[(address, bytes)] of a packet's pieces."""
    at, pieces = desc.buff_lst, []
    while at:
        b = Buff.from_address(at)
        pieces.append((at, ctypes.string_at(b.payload, b.len)))
        at = b.next
    assert len(pieces) == desc.num_bufs and sum(len(d) for _, d in pieces) == desc.total_len, (desc.num_bufs, desc.total_len, pieces)
    return pieces


def give_back(*descs):
    return api("socketxtreme_free_vma_packets", (Desc * len(descs))(*descs), len(descs))


def completions(fd, n=16, keep=False):
    """What one poll tells: dictionaries. Unless they are kept, packets are given back at once."""
    room = (Completion * n)()
    told = []
    for c in room[:api("socketxtreme_poll", fd, room, n, 0)]:
        pieces = chain(c.packet) if c.events & PACKET else []
        family, port = struct.unpack("=H", bytes(c.src[:2]))[0], struct.unpack("!H", bytes(c.src[2:4]))[0]
        host = socket.inet_ntoa(bytes(c.src[4:8])) if family == socket.AF_INET else family
        told.append({"events": c.events, "user": c.user_data, "src": (host, port),
                     "listen": c.listen_fd, "data": b"".join(d for _, d in pieces), "pieces": [at for at, _ in pieces],
                     "desc": Desc.from_buffer_copy(c.packet), "hw": c.packet.hw.sec})
        if pieces and not keep:
            give_back(c.packet)
    return told


def await_completions(fd, enough, seconds=5, **how):
    """Polls until enough(all that was told so far) is true, or the time is over; all of them."""
    end, told = time.monotonic() + seconds, []
    while not enough(told) and time.monotonic() < end:
        told += completions(fd, **how)
    return told


def user_data(s, value=None):
    """SO_VMA_USER_DATA, after it was set."""
    if value is not None:
        s.setsockopt(socket.SOL_SOCKET, SO_VMA_USER_DATA, struct.pack("=Q", value))
    return struct.unpack("=Q", s.getsockopt(socket.SOL_SOCKET, SO_VMA_USER_DATA, 8))[0]
