# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a program should not do with the Extra API: an errno each time, never a crash, and the sockets go on.

Run it with --sanitize, too. The topology is test_extra.py's.
"""

import random

import pytest

from differential import CHILDREN
from netns import wait_for
from test_extra import datagrams, stream

TWO = """
t = udp(7005); t.settimeout(5); ready(t)
def offloaded_too():
    return api('get_socket_rings_num', t.fileno()) == 1
"""


def test_what_was_given_back_or_never_was_a_packet(unet):
    with datagrams(unet) as (a, b):
        a.do(TWO)
        b.do("[p.sendto(b'%d' % i, to) for i in range(4)]")
        a.do("ids = [zcopy(s, ZCOPY_FORCE)[1] for _ in range(4)]")
        # Of another socket, of a number that is none, of nothing.
        assert a.ask("free(t, ids[0])") == ("OSError", "ENOENT")
        assert a.ask("free(None, ids[0], number=999)") == ("OSError", "EINVAL")
        assert a.ask("free(None, ids[0], number=-1)") == ("OSError", "EINVAL")
        assert a.ask("api('free_packets', s.fileno(), None, 1)") == ("OSError", "EINVAL")
        for wrong in ("None", "0", "1", "ids[0] + 100", "ids[0] + (1 << 16)", "2 ** 64 - 1", "id(ids)"):
            assert a.ask(f"free(s, {wrong})") == ("OSError", "ENOENT"), wrong
        # One that is wrong does not keep the others.
        assert a.ask("free(s, ids[0], 1, ids[1])") == ("OSError", "ENOENT")
        assert a.ask("free(s, ids[1])") == ("OSError", "ENOENT")
        assert a.do("free(s, ids[2], ids[3])") == 0
        # Its place is another packet's now.
        b.do("p.sendto(b'new', to)")
        a.do("new = zcopy(s, ZCOPY_FORCE)[1]")
        assert a.ask("free(s, ids[3])") == ("OSError", "ENOENT")
        assert a.do("free(s, new)") == 0


@pytest.mark.parametrize("family", ["4", "6"])
def test_packets_outlive_their_socket(unet, family):
    with datagrams(unet, family) as (a, b):
        a.do(TWO)
        b.do("[p.sendto(b'%d' % i * 1000, to) for i in range(2)]")
        a.do("seen = [zcopy(s, ZCOPY_FORCE, 4096) for _ in range(2)]; seen2 = []")
        a.do("callback(s, lambda data, info: (seen2.append(info), HOLD)[1])")
        b.do("p.sendto(b'2' * 1000, to)")
        assert wait_for(lambda: a.do("[ready(s, 10), len(seen2)][1]")) == 1
        a.do("number = s.fileno(); s.close()")
        # Another socket gets the number, and its packets other memory.
        a.do("s = udp(7000); s.settimeout(5); ready(s)")
        b.do("[p.sendto(b'x' * 1000, to) for _ in range(100)]")
        assert a.do("b''.join(s.recv(2000) for _ in range(20))") == b"x" * 20000
        assert a.do("ctypes.string_at(*seen2[0]['iov'][0])") == b"2" * 1000
        assert a.do("free(s, seen[0][1], seen2[0]['id'])") == 0
        assert a.do("free(None, seen[1][1], number=999)") == 0
        assert a.ask("free(s, seen[1][1])") == ("OSError", "ENOENT")


def test_frames_of_a_stream_outlive_its_connection(unet):
    with stream(unet) as (a, b):
        a.do("seen = []; callback(s, lambda data, info: (seen.append(info), HOLD)[1])")  # before anything comes
        b.do("p.send(b'kept' * 300)")
        a.do("while sum(i['size'] for i in seen) < 1200: ready(s, 50, select.POLLIN)")
        b.do("p.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); p.close()")
        assert a.ask("s.recv(10)") == ("OSError", "ECONNRESET")
        a.do("s.close()")
        assert a.do("b''.join(ctypes.string_at(*x) for i in seen for x in i['iov'])") == b"kept" * 300
        assert a.do("free(None, *[i['id'] for i in seen], number=999)") == 0


CALLBACKS = {
    "closes its socket": ("s.close(); return RECV", None),
    "closes and holds": ("held.append(info['id']); s.close(); return HOLD", None),
    "takes another socket's number": ("os.dup2(t.fileno(), s.fileno()); return RECV", None),
    "forks": ("held.append(child(lambda: None)); return RECV", b"data"),
    "frees what it has": ("held.append(str(refused(lambda: free(s, info['id'])))); return RECV", b"data"),
    "returns nonsense": ("return 4711", None),
    "receives": ("held.append(refused(lambda: zcopy(s, socket.MSG_DONTWAIT))); return RECV", b"data"),
    "waits": ("ready(s, 100); ready(t, 100); return RECV", b"data"),
    "registers another": ("callback(s, lambda d, i: RECV); return RECV", b"data"),
    "shuts down": ("refused(lambda: s.shutdown(socket.SHUT_RD)); return DROP", None),
}
KIT = CHILDREN + """
held = []
def refused(fn):
    try: fn()
    except OSError as e: return e.errno
"""


@pytest.mark.parametrize("how", CALLBACKS)
@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_a_callback_that(unet, protocol, how):
    body, expected = CALLBACKS[how]
    with (datagrams if protocol == "udp" else stream)(unet) as (a, b):
        a.do(TWO)
        b.do("q = socket.socket(FAM, socket.SOCK_DGRAM)")
        a.do(f"{KIT}\ndef decide(data, info):\n    {body}\ncallback(s, decide)\n")
        a.do("s.setblocking(False)")
        b.do("p.sendto(b'data', to)" if protocol == "udp" else "p.send(b'data')")
        # Whatever comes of it, it comes: the read says so, or that the socket is not there.
        answer = wait_for(lambda: (r := a.ask("s.recv(100)")) != ("OSError", "EAGAIN") and [r] or a.do("len(held)") and [r]
                          or how in ("returns nonsense", "shuts down", "takes another socket's number") and [r])[0]
        print(protocol, how, answer)
        if expected is not None:
            assert wait_for(lambda: answer == expected or a.ask("s.recv(100)") == expected)
        if how == "forks":
            assert a.do("[wait(pid) for pid in held]") == [0]
        if how == "frees what it has":
            assert a.do("held") == ["16"]  # EBUSY
        if how == "closes and holds":
            assert a.do("free(None, held[0], number=999)") == 0
        # Others go on.
        b.do("q.sendto(b'other', (PEER, 7005))")
        assert a.do("t.recv(10)") == b"other"
        assert a.do("failures") == []


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
@pytest.mark.parametrize("way", ["os._exit(0)", "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])", "LIBC.exit(0)"])
def test_a_process_ends_with_packets_in_its_hands(unet, protocol, way):
    with (datagrams if protocol == "udp" else stream)(unet) as (a, b):
        b.do("p.sendto(b'x' * 100, to)" if protocol == "udp" else "p.send(b'x' * 100)")
        a.do("kept = zcopy(s)")
        a.do(f"callback(s, lambda data, info: {way}); p = select.poll()")
        a.start("p.register(s, select.POLLIN); p.poll(5000)")
        b.do("p.sendto(b'x' * 100, to)" if protocol == "udp" else "p.send(b'x' * 100)")
        with pytest.raises(AssertionError, match="ended with"):
            a.answer()
        code = a.popen.wait(20)
        print(way, code)
        assert code == 0


def test_a_child_has_none_of_its_parents_packets(unet):
    with datagrams(unet) as (a, b):
        b.do("[p.sendto(b'%d' % i, to) for i in range(2)]")
        a.do("ids = [zcopy(s, ZCOPY_FORCE)[1] for _ in range(2)]")
        a.do(KIT + """
def try_it():
    assert refused(lambda: free(s, ids[0])) in (2, 22)
    assert refused(lambda: zcopy(s, socket.MSG_DONTWAIT)) in (11, 22)
pid = child(try_it)
""")
        assert a.do("wait(pid)") == 0
        assert a.do("free(s, *ids)") == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_calls_with_random_arguments(unet, seed):
    """Each answers or fails; in the end both sockets still receive."""
    rng = random.Random(seed)
    with datagrams(unet) as (a, b):
        a.do(TWO + "ids = [1]; s.setblocking(False)")
        a.do("verdicts = [DROP, RECV, HOLD, 5]\ndef decide(data, info):\n    ids.append(info['id']); return verdicts[len(ids) % 4]")
        for i in range(150):
            b.do(f"p.sendto(b'{i}' * {rng.randrange(300)}, (PEER, {rng.choice([7000, 7005])}))")
            fd = rng.choice(["s.fileno()", "t.fileno()", "-1", "0", "999", "2**31 - 1"])
            k = rng.randrange(1000)
            call = rng.choice([
                f"ids.append(zcopy(s, {rng.choice([0, 0x40, 0x01000000, 2, 0x20, 0x2000])} | socket.MSG_DONTWAIT, "
                f"{rng.choice([0, 10, 40, 60, 4096])}, number={fd})[1])",
                f"free(s, ids[{k} % len(ids)], number={fd})", f"free(s, ids[{k} % len(ids)], ids[{k} % len(ids)])",
                f"callback(s, {rng.choice(['None', 'decide'])}, number={fd})", f"api('get_socket_rings_num', {fd})",
                f"api('dump_fd_stats', {fd}, {rng.choice([5, 99, -5])})", f"api('get_socket_network_header', {fd}, None, None)",
                f"api('get_socket_tx_ring_fd', {fd}, None, 0)", f"api('get_socket_rings_fds', {fd}, None, 5)",
                "s.close() or globals().update(s=udp(7000)) or s.setblocking(False)", "s.recv(10)", "t.recv(10)",
            ])
            if "t.fileno()" in call:
                call = f"t.setblocking(False); {call}"
            r = a.ask(call)
            assert r is None or isinstance(r, (int, bytes)) or r[0] == "OSError", (call, r)
        a.do("callback(s, None); callback(t, None); t.setblocking(False)")
        b.do("[p.sendto(b'last', x) for x in (to, (PEER, 7005))]")
        for which in "st":
            a.do(f"freed = 0\nfor i in set(ids):\n    try: free({which}, i); freed += 1\n    except OSError: pass")
            wait_for(lambda w=which: b.do("[p.sendto(b'last', x) for x in (to, (PEER, 7005))]") and a.ask(f"{w}.recv(2000)") == b"last")
        assert a.do("failures") == []


def test_bad_pointers_are_told(unet):
    with datagrams(unet) as (a, b):
        a.do("f = ctypes.c_int(0)")
        assert a.ask("api('recvfrom_zcopy', s.fileno(), None, 100, ctypes.byref(f), None, None)") == ("OSError", "EFAULT")
        assert a.ask("api('recvfrom_zcopy', s.fileno(), None, 0, None, None, None)") == ("OSError", "EFAULT")
        assert a.ask("api('recvfrom_zcopy', s.fileno(), None, 0, ctypes.byref(f), b'1234567890123456', None)") == ("OSError", "EFAULT")
