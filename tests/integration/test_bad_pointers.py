# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every call with every pointer bad in turn: the library answers as kernel sockets do, and nobody dies."""

import difflib
import signal

import pytest

from differential import App
from netns import python_argv
from test_cancel import ECHO, TCP_PORT, UDP_PORT


def answers(net, library, preload):
    argv = [library.helpers / "bad_pointers", net.a.ip4, net.b.ip4, UDP_PORT, TCP_PORT]
    done = net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"}, check=False, timeout=60)
    assert done.popen.returncode == 0, f"after:\n{done.text[-600:]}"
    return done.text.splitlines()


@pytest.mark.no_sanitize
def test_a_bad_message_for_a_kernel_socket_is_the_kernels_to_refuse(net):
    """It is searched for descriptors of ours before."""
    with App(net.a, True, "4") as app:
        app.do("u = udp(7000); a, b = socket.socketpair()")
        for msg in ("8", "struct.pack('8Q', 0, 0, 0, 0, 8, 64, 0, 0)"):
            assert app.ask(f"call('sendmsg', a.fileno(), {msg}, 0)")[:2] == ("OSError", "EFAULT")
        assert app.ask("call('sendmmsg', a.fileno(), 8, 1, 0)")[:2] == ("OSError", "EFAULT")


# The library has not started, but there is a set of its own.
SET = """
import ctypes, errno, os, select, signal
e = select.epoll()
e.register(os.pipe()[1], select.EPOLLOUT)
libc = ctypes.CDLL(None, use_errno=True)
def say(what, *args):
    ctypes.set_errno(0)
    print(what, args[3:], getattr(libc, what)(*args), errno.errorcode.get(ctypes.get_errno()))
sets = []
for again in range(3):
    for bad in (None, ctypes.c_void_p(8)):
        say("epoll_ctl", e.fileno(), 1, 0, bad)
        say("epoll_wait", e.fileno(), bad, 1, 0)
        say("poll", bad, 1, 0)
        say("ppoll", bad, 1, None, None)
    say("select", 1, bad, None, None, None)
    # One that is in another one the library has to follow.
    sets.append(select.epoll())
    e.register(sets[-1], select.EPOLLIN)
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
print("default:", signal.getsignal(signal.SIGSEGV))
ctypes.string_at(8)
"""


@pytest.mark.no_sanitize
def test_with_a_set_and_no_socket(net):
    argv = ["prlimit", "--core=0", *python_argv(SET)]
    ends = [net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR"}, check=False) for preload in (False, True)]
    kernel, ours = (e.text for e in ends)
    print(kernel)
    assert ours == kernel and kernel.count("EFAULT") == 27
    assert [e.wait() for e in ends] == [-signal.SIGSEGV] * 2


CONTROL = """
LIBC.mmap.restype = ctypes.c_void_p
pages = LIBC.mmap(None, 8192, 3, 0x22, -1, 0)
LIBC.munmap(ctypes.c_void_p(pages + 4096), 4096)
byte = ctypes.create_string_buffer(b'x', 1)
iov = Iovec(ctypes.addressof(byte), 1)
def with_length(n):
    "sendmsg() of two rights, the last of the page, which say that they are so long"
    at = pages + 4096 - 24
    ctypes.memmove(at, struct.pack('=Qiiii', n, socket.SOL_SOCKET, socket.SCM_RIGHTS, u.fileno(), u.fileno()), 24)
    return call('sendmsg', a.fileno(), ctypes.byref(Msghdr(iov=ctypes.pointer(iov), iovlen=1, control=at, controllen=24)), 0)
"""


@pytest.mark.no_sanitize
def test_rights_that_say_that_they_are_longer_are_the_kernels_to_refuse(net):
    for preload in (False, True):
        with App(net.a, preload, "4") as app:
            app.do("u = udp(7000); a, b = socket.socketpair()")
            app.do(CONTROL)
            for n in (8192, 25, 15, 0, (1 << 64) - 16, (1 << 64) - 1):
                assert app.ask(f"with_length({n})") == ("OSError", "EINVAL"), (preload, n)
            assert app.do("with_length(24)") == 1
            print("six lengths refused, one taken")


@pytest.mark.no_sanitize  # SIGSEGV is the sanitizer's there
def test_every_bad_pointer_is_answered_as_with_kernel_sockets(net, library):
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("ready")
    kernel, ours = answers(net, library, False), answers(net, library, True)
    print(kernel[-1])
    diff = list(difflib.unified_diff(kernel, ours, "kernel", "ours", lineterm="", n=0))
    assert not diff, "\n".join(diff)
