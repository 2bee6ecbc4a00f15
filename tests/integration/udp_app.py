#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The application under test: runs the lines of Python that it reads and answers with what came of each.

The same lines are run with kernel sockets and under LD_PRELOAD (differential.py), so what a call returned, its errno
and its ancillary data can be compared. One JSON string a line in; one repr() a line out. An OSError is an answer, too.
"""

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
SOL_UDP = 17
UDP_SEGMENT, UDP_GRO = 103, 104
MSG_WAITFORONE = 0x10000
IP_PKTINFO, IP_RECVERR, IP_RECVTTL, IP_RECVTOS, IP_MTU_DISCOVER, IP_MULTICAST_ALL = 8, 11, 12, 13, 10, 49
IPV6_RECVERR, IPV6_MULTICAST_ALL = 25, 29
SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, SO_RXQ_OVFL, SO_NO_CHECK = 29, 35, 37, 40, 11


class Timeval(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("frac", ctypes.c_long)]


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint32), ("iov", ctypes.POINTER(Iovec)),
                ("iovlen", ctypes.c_size_t), ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [("hdr", Msghdr), ("len", ctypes.c_uint)]


def checked(function, *args):
    """What a function of C's returns; raises OSError as Python's own wrappers do."""
    ctypes.set_errno(0)
    result = function(*args)
    if result < 0:
        e = ctypes.get_errno()
        raise OSError(e, errno.errorcode.get(e, str(e)))
    return result


def call(name, *args):
    """A libc function by name; raises OSError."""
    return checked(getattr(LIBC, name), *args)


def recvmmsg(s, n, size=2048, flags=0, timeout=None):
    """[(bytes, msg_flags, name length)] of one recvmmsg() with room for n datagrams."""
    room = [ctypes.create_string_buffer(size) for _ in range(n)]
    names = [ctypes.create_string_buffer(128) for _ in range(n)]
    msgs = (Mmsghdr * n)()
    for i in range(n):
        iov = Iovec(ctypes.addressof(room[i]), size)
        msgs[i].hdr.name = ctypes.addressof(names[i])
        msgs[i].hdr.namelen = 128
        msgs[i].hdr.iov = ctypes.pointer(iov)
        msgs[i].hdr.iovlen = 1
    left = Timeval(int(timeout), int(timeout % 1 * 1e9)) if timeout is not None else None
    got = call("recvmmsg", s.fileno(), msgs, n, flags, ctypes.byref(left) if left else None)
    return [(room[i].raw[:min(msgs[i].len, size)], msgs[i].len, msgs[i].hdr.flags, msgs[i].hdr.namelen)
            for i in range(got)]


def sendmmsg(s, payloads, address=None, flags=0):
    """Result of one sendmmsg() and the lengths that it noted."""
    msgs = (Mmsghdr * len(payloads))()
    keep = []
    raw = sockaddr(address) if address else None
    for i, payload in enumerate(payloads):
        data = ctypes.create_string_buffer(payload, len(payload) or 1)
        iov = Iovec(ctypes.addressof(data), len(payload))
        keep += [data, iov]
        if raw:
            msgs[i].hdr.name = ctypes.cast(raw, ctypes.c_void_p)
            msgs[i].hdr.namelen = len(raw)
        msgs[i].hdr.iov = ctypes.pointer(iov)
        msgs[i].hdr.iovlen = 1
    sent = call("sendmmsg", s.fileno(), msgs, len(payloads), flags)
    return sent, [msgs[i].len for i in range(sent)]


def sockaddr(address):
    """A sockaddr as bytes in C memory."""
    if ":" in address[0]:
        raw = struct.pack("=HHI16sI", socket.AF_INET6, socket.htons(address[1]), 0,
                          socket.inet_pton(socket.AF_INET6, address[0]), address[3] if len(address) > 3 else 0)
    else:
        raw = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(address[1]),
                          socket.inet_aton(address[0]))
    return (ctypes.c_char * len(raw)).from_buffer_copy(raw)


def disconnect(s):
    """connect() to AF_UNSPEC."""
    return call("connect", s.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16)


def ready(s, timeout=0, events=select.POLLIN | select.POLLOUT | select.POLLERR):
    """poll() on the socket: the events as a number."""
    p = select.poll()
    p.register(s, events)
    return sum(e for _, e in p.poll(timeout))


def await_ready(s, events=select.POLLIN, timeout=3.0):
    """Waits without reading until poll() shows one of the events; what it shows."""
    p = select.poll()
    p.register(s, events)
    return sum(e for _, e in p.poll(int(timeout * 1000 * float(os.environ.get("TEST_PATIENCE", 1)))))


def tv(seconds):
    return struct.pack("ll", int(seconds), int(round(seconds % 1 * 1e6)))


def ancillary(items):
    """Ancillary data without what differs from one run to the next: times are only said to be now."""
    out = []
    for level, kind, data in items:
        if level == socket.SOL_SOCKET and kind in (SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, 63, 64, 65):
            sec = struct.unpack("l", data[:8])[0] if len(data) >= 8 else time.time()
            data = (len(data), abs(sec - time.time()) < 5, any(data[16:]))
        out.append((level, kind, data))
    return out


def rmsg(s, size=2048, room=512, flags=0):
    """recvmsg() with its ancillary data made comparable."""
    data, anc, mflags, name = s.recvmsg(size, room, flags)
    return data, ancillary(anc), mflags, name


def timed(function, *args):
    """(result or errno name, seconds)"""
    start = time.monotonic()
    try:
        value = function(*args)
    except OSError as e:
        value = errno.errorcode.get(e.errno, e.errno)
    return value, time.monotonic() - start


def main():
    # fds 0 and 1 talk with the test; what the library prints goes to fd 2.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    scope = globals()
    for line in sys.stdin:
        code = json.loads(line)
        try:
            try:
                compiled = compile(code, "<step>", "eval")
            except SyntaxError:
                exec(compile(code, "<step>", "exec"), scope)
                value = None
            else:
                value = eval(compiled, scope)
        except OSError as e:
            value = ("OSError", errno.errorcode.get(e.errno, e.errno or type(e).__name__))
        except Exception as e:  # the test's own mistake: shown, never equal to a good answer
            value = ("Exception", repr(e))
        print(repr(value), file=out, flush=True)


if __name__ == "__main__":
    main()
