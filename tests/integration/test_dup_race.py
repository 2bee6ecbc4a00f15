# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Another thread comes between the library's step and the kernel's, of dup() (dup_race.c) and close_range() (close_race.c)."""

import re

import pytest

from differential import App
from netns import interposers, ip

PORT = 7330
ECHO = """
import socket, sys
lst = socket.create_server((sys.argv[1], %d))
print("listens", flush=True)
c = lst.accept()[0]
while data := c.recv(100):
    c.sendall(data)
""" % PORT


@pytest.fixture(scope="module")
def races(tmp_path_factory):
    return interposers(tmp_path_factory, "dup_race", "close_race")


def run(net, races, helper, *args):
    preload = " ".join(filter(None, (net.library.environment()["LD_PRELOAD"], str(races / f"{helper}.so"))))
    text = net.a.run(["env", f"LD_PRELOAD={preload}", net.library.helpers / helper, *args], True, {}).text
    print(text)
    return text


@pytest.mark.parametrize("call", ["dup", "dup2", "fcntl"])
def test_the_copy_is_what_its_number_named_when_it_was_made(unet, races, call):
    unet.b.python(ECHO, args=(unet.b.ip4,)).wait_text("listens")
    assert "the copy is the connection" in run(unet, races, "dup_race", call, unet.b.ip4, PORT)


def test_close_range_takes_no_descriptor_that_the_library_opens_meanwhile(unet, races):
    assert "24 threads wait, 0 descriptors of the library's have gone" in run(unet, races, "close_race", unet.a.ip4)


LINGERS = """
import resource, threading
# As everywhere: the library's own numbers stand between the two limits.
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
other = socket.socket()
s = socket.create_connection((PEER, PORT))
s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 20))
a, b = socket.socketpair()
socket.send_fds(a, [b"x"], [s.fileno()])
for fd in socket.recv_fds(b, 1, 1)[1]: os.close(fd)
t = threading.Thread(target=lambda: CLOSES)
"""


@pytest.mark.parametrize("closes", ["os.dup2(other.fileno(), s.fileno())", "os.closerange(s.fileno(), s.fileno() + 1)"],
                         ids=["dup2", "close_range"])
def test_nobody_waits_for_a_close_that_lingers(net, closes):
    """Of a connection that has gone to the kernel; its peer does not answer any more."""
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("listens")
    with App(net.a, True, "4") as app:
        app.do(LINGERS.replace("PORT", str(PORT)).replace("CLOSES", closes))
        ip("-n", net.b.name, "link", "set", net.b.dev, "down")
        app.do("s.sendall(b'x')\nt.start()\nn = 0\nwhile t.is_alive() and n <= 20:\n    socket.socket().close(); n += 1", timeout=60)
        made = app.do("n")
        print(f"{made} sockets meanwhile")
        assert made > 20
        ip("-n", net.b.name, "link", "set", net.b.dev, "up")
        app.do("t.join()", timeout=60)


@pytest.mark.parametrize("call", ["close", "dup2", "close_range"])
def test_a_number_that_is_nobodys_is_not_the_librarys_for_a_moment(unet, call):
    """A daemon closes all numbers that there can be, while threads of it begin to wait. Before: 50 to 3,000 calls in 4 seconds."""
    text = unet.a.run([unet.library.helpers / "rude_close", call, unet.a.ip4, 3], True).text
    print(text)
    met, failed = map(int, re.search(r"(\d+) calls met .*, (\d+) waits failed", text).groups())
    # The library waits for a thread that closes 50 ms at most: it may lose its processor for longer.
    assert met < 20 and not failed
