# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""ioctl() of the Extra API: the memory of the rings is the program's own (CMSG_VMA_IOCTL_USER_ALLOC).

   net.a: own_memory.c with the library, UDP and TCP at port 7000 --- veth, or a card --- net.b: kernel sockets
"""

import errno
import random
import re

import pytest

from differential import App
from netns import ip, wait_for
from test_why import reasons

PORT = 7000


@pytest.fixture
def peer(net):
    with net.b.socket() as s:
        yield s


@pytest.fixture
def program(net, library):
    def start(*words, env=None):
        p = net.a.popen([library.helpers / "own_memory", net.a.ip4, PORT, *words], preload=True, env=env)
        p.wait_text("^ready$", 20)
        return p
    return start


def asked(net, peer, data):
    """A datagram, and what the program answers."""
    peer.sendto(data, (net.a.ip4, PORT))
    assert peer.recv(65536) == data


def attached(net, p, peer):
    """Until the program's datagrams come by its ring: the first ones may be the kernel's."""
    def by_ring():
        asked(net, peer, b"hello")
        return re.search(r"^datagram: 5 bytes in \d+$", p.text, re.M)
    return wait_for(by_ring, 20, "a datagram in the program's memory")


@pytest.mark.parametrize("memory", [0, 1, 2])
def test_rings_have_the_programs_memory(net, program, peer, memory):
    """Whatever VMA_MEM_ALLOC_TYPE says. What is not in it would be told as "elsewhere"."""
    p = program(env={"VMA_MEM_ALLOC_TYPE": memory})
    attached(net, p, peer)
    so_far = len(p.text)
    before = net.a.counters()["UdpInDatagrams"]
    for i in range(300):
        asked(net, peer, random.Random(i).randbytes(10 + i * 4))
    assert net.a.counters()["UdpInDatagrams"] == before
    asked(net, peer, b"fork")
    with net.b.socket(kind=1) as s:
        data = random.Random(7).randbytes(100000)
        s.connect((net.a.ip4, PORT))
        for i in range(0, len(data), 1000):
            s.sendall(data[i:i + 1000])
            assert s.recv(1000, 0x100) == data[i:i + 1000]  # MSG_WAITALL
    p.wait_text("^stream$")
    asked(net, peer, b"end")
    assert p.wait() == 0, p.text
    print(p.text[:so_far], p.text[-200:])
    assert "\nright: 0 0 0\n" in p.text
    given = [int(n) for n in re.findall(r"^given (\d+)$", p.text, re.M)]
    assert len(given) == 1 and given[0] > 4096, given
    where = re.findall(r"^datagram: \d+ bytes (.*)$", p.text[so_far:], re.M)
    assert where == ["in 0"] * 302, where
    # The child does not have it, and the library gives nothing back in it, nor at the end of the process.
    assert "\nchild 0\n" in p.text and not re.search("^back", p.text, re.M)
    assert "NO IMMEDIATE ACTION" not in p.text


def test_what_is_wrong_or_too_late_changes_nothing(net, program, peer):
    p = program()
    wrong = re.search(r"^wrong: (.*)$", p.text, re.M)[1].split()
    print(p.text)
    assert wrong == [str(errno.EINVAL)] * 10
    assert f"\nlate: {errno.EINVAL}\n" in p.text
    attached(net, p, peer)


def test_memory_comes_back_when_the_interface_goes(net, program, peer):
    p = program()
    attached(net, p, peer)
    assert not re.search("^back", p.text, re.M)
    ip("-n", net.a.name, "link", "del", net.a.dev)
    p.wait_text("^back 0$", 20)
    # With the interface made anew there is new memory.
    net.link()
    net.neighbours()

    def again():
        asked(net, peer, b"again")
        return "datagram: 5 bytes in 1\n" in p.text
    wait_for(again, 20, "a datagram in new memory")
    assert "which is none" not in p.text


def test_without_memory_the_kernel_serves(net, program, peer):
    p = program("none")
    for i in range(20):
        asked(net, peer, b"datagram %d" % i)
    asked(net, peer, b"end")
    assert p.wait() == 0, p.text
    print(p.text)
    assert "the program's allocator (vma_extra(3), ioctl()) has no" in p.text
    assert "bytes in" not in p.text


def test_nobody_else_gets_that_memory(net, program, peer):
    """Processes of one user share queues and memory, but not this one's: the other is served by the kernel, and says why."""
    p = program()
    attached(net, p, peer)
    with App(net.a, True) as other:
        other.do("s = udp(7100); s.settimeout(5); await_ready(s, timeout=0.01)")
        peer.sendto(b"x", other.at(7100))
        assert other.do("s.recv(10)") == b"x"
        print(reasons(other, other.do("s.fileno()")))
        assert not other.do("open('/proc/self/maps').read().count('vma-port')")
    asked(net, peer, b"end")
    assert p.wait() == 0


def test_it_takes_no_part_in_others_memory(net, program, peer):
    with App(net.a, True) as first:
        first.do("s = udp(7100); await_ready(s, timeout=0.01)")
        p = program()
        for i in range(20):
            asked(net, peer, b"datagram %d" % i)
        # It had asked its allocator before it knew that, and given it back.
        print(p.text)
        assert " bytes in " not in p.text
        assert len(re.findall("^given", p.text, re.M)) == len(re.findall("^back", p.text, re.M))
    # When that one has ended the interface is this one's.
    attached(net, p, peer)
