# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The functions of libc that libvma 9.8 takes the place of: this library has each, and the checked ones serve its sockets, too."""

import subprocess

import pytest

from differential import CHILDREN, App
from netns import wait_for

# As its sock-redirect exports them.
OF_9_8 = """
    socket close __res_iclose shutdown listen accept accept4 bind connect setsockopt getsockopt fcntl fcntl64 ioctl getsockname getpeername
    read __read_chk readv recv __recv_chk recvmsg recvmmsg recvfrom __recvfrom_chk write writev send sendmsg sendmmsg sendto sendfile sendfile64
    select pselect poll __poll_chk ppoll __ppoll_chk epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait socketpair pipe open creat
    dup dup2 clone fork vfork daemon sigaction signal vma_exit
""".split()
NOT_HERE = {
    "__res_iclose": "libc's own, which calls it by no name that a library could take (GLIBC_PRIVATE); name servers are asked by the kernel",
    "vma_exit": "no function of libc's: what it does happens at the end of the process",
}


def test_the_list_is_exported(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library.path], capture_output=True, text=True, check=True).stdout.splitlines()
    exported = {line.split()[-1].split("@")[0] for line in lines}
    print(f"{len(OF_9_8)} functions; not here: {', '.join(NOT_HERE)}")
    assert len(set(OF_9_8)) == len(OF_9_8) == 57
    assert {name for name in OF_9_8 if name not in exported} == NOT_HERE.keys()


CHECKED = """
import select
room = ctypes.create_string_buffer(100)
class Pollfd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]
S = ctypes.c_size_t
def got(n): return room.raw[:n]
def chk_read(n, has=100): return got(call("__read_chk", s.fileno(), room, S(n), S(has)))
def chk_recv(n, has=100): return got(call("__recv_chk", s.fileno(), room, S(n), S(has), 0))
def chk_recvfrom(n, has=100): return got(call("__recvfrom_chk", s.fileno(), room, S(n), S(has), 0, None, None))
def chk_poll(n=1, has=8):
    p = Pollfd(s.fileno(), select.POLLIN, 0)
    return call("__poll_chk", ctypes.byref(p), ctypes.c_ulong(n), 5000, S(has)), p.revents
def chk_ppoll(n=1, has=8):
    p, t = Pollfd(s.fileno(), select.POLLIN, 0), (ctypes.c_long * 2)(5, 0)
    return call("__ppoll_chk", ctypes.byref(p), ctypes.c_ulong(n), t, None, S(has)), p.revents
"""


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_the_checked_functions_serve_an_offloaded_socket(unet, kind):
    unet.neighbours()
    with App(unet.a, True) as a, App(unet.b, False) as b:
        if kind == "udp":
            b.do("p = udp(7000)")
            a.do("s = udp(7001); s.connect((PEER, 7000)); await_ready(s, timeout=0.01)")
            b.do("p.connect((PEER, 7001))")
        else:
            b.do("l = socket.create_server((ME, 7000))")
            a.do("s = socket.create_connection((PEER, 7000))")
            b.do("p, _ = l.accept()")
        a.do(CHECKED)
        with unet.a.bypassed(), unet.a.tcp_bypassed():
            for name, n in (("read", 100), ("recv", 10), ("recvfrom", 8)):
                for poll in ("poll", "ppoll"):
                    b.do(f"p.send(b'{name}')")
                    assert a.do(f"chk_{poll}()") == (1, 1)
                    if poll == "poll":
                        assert a.do(f"chk_{name}({n})") == name.encode()
                    else:
                        assert a.do("s.recv(100)") == name.encode()


@pytest.mark.parametrize("wrong", ["chk_read(101)", "chk_recv(11, 10)", "chk_recvfrom(1, 0)", "chk_poll(2, 15)", "chk_ppoll(2, 8)"])
def test_what_has_no_room_ends_the_process_as_libc_does(unet, wrong):
    with App(unet.a, True) as a:
        a.do("s = udp(7001); await_ready(s, timeout=0.01)")
        a.do(CHECKED + CHILDREN)
        a.do(f"pid = child(lambda: {wrong})")
        assert a.do("wait(pid)") == -6
        assert wait_for(lambda: "*** buffer overflow detected ***" in a.text)
