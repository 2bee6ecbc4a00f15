# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What vma_stats says of waits, for each socket and set: those that spinning ended, spins in vain, sleeps and why."""

import json
import subprocess

import pytest

from differential import App
from netns import PATIENCE, wait_for
from test_tcp_both import HELPERS


def tool(app, *args):
    net = app.host.net
    return subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(app.pid), "-c", "1", *args],
                          capture_output=True, text=True, timeout=20 * PATIENCE, check=True).stdout


def waits(app, what):
    """what: a socket's number, "poll", or ("epoll", number)."""
    all_ = json.loads(tool(app, "--json").splitlines()[-1])
    if what == "poll":
        return all_["poll"]["waits"]
    sockets, key, number = (all_["epoll"], "epfd", what[1]) if isinstance(what, tuple) else (all_["sockets"], "fd", what)
    return [s["waits"] for s in sockets if s[key] == number][0]


def whole(w):
    """Each sleep has one reason."""
    assert w["slept"] == sum(n for name, n in w.items() if name.startswith("slept_")), w
    return w


WAYS = {"udp": "u.recv(10)", "tcp": "s.recv(10)", "poll": "p.poll() and u.recv(10)", "epoll": "e.poll() and u.recv(10)"}
GIVE = {"tcp": "c.send(b'x')"}


def prepared(app, peer):
    """u, s: datagram socket and connection; p and e watch u. Returns what vma_stats knows each by."""
    for x in (app, peer):
        x.do(HELPERS)
    app.do("l = listener(); u = udp(7000); ready(l); ready(u)")
    app.start("s = l.accept()[0]; p = select.poll(); p.register(u, select.POLLIN); e = select.epoll(); e.register(u, select.EPOLLIN)")
    peer.do("c = client(); v = udp(7200)")
    app.answer()
    u, s, e = app.do("(u.fileno(), s.fileno(), e.fileno())")
    return {"udp": u, "tcp": s, "poll": "poll", "epoll": ("epoll", e)}


def one_wait(app, what, call, give, polls):
    """A wait that ends by what give() gives; it has slept, or spun, as the number of polls says."""
    def waited():
        """As a rule it begins before what it waits for comes; whether it was counted."""
        first = whole(waits(app, what))
        app.start(call)
        if polls == "0":
            wait_for(lambda: open(f"/proc/{app.pid}/wchan").read() not in ("0", ""), 10, "it sleeps")
        give()
        assert app.answer() == b"x"
        now = whole(waits(app, what))
        more = {name: now[name] - first[name] for name in now if now[name] != first[name]}
        return more in ({}, {"slept": 1, "slept_setting": 1} if polls == "0" else {"spun": 1}) and more
    print(f"{call}, {polls} polls: {wait_for(waited, 20, 'the wait is counted')}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("polls", ["0", "-1"])
def test_who_is_told_how_long_to_spin_does_so(net, way, polls):
    net.neighbours()
    with App(net.a, True, env={"VMA_RX_POLL": polls, "VMA_SELECT_POLL": polls}) as app, App(net.b, False) as peer:
        what = prepared(app, peer)[way]
        one_wait(app, what, WAYS[way], lambda: peer.do(GIVE.get(way, "v.sendto(b'x', (PEER, 7000))")), polls)
        text = tool(app, "-v", "3")
        assert "[spun/in vain/slept] (setting" in text if polls == "0" else "/ 0 / 0 [spun/in vain/slept]\n" in text, text


@pytest.mark.parametrize("polls, others", [("0", "-1"), ("-1", "0")])
def test_a_socket_without_a_ring_has_a_number_of_its_own(net, polls, others):
    """VMA_RX_POLL_INIT: by lo only the kernel brings something."""
    with App(net.a, True, env={"VMA_RX_POLL_INIT": polls, "VMA_RX_POLL": others}) as app, net.a.socket() as peer:
        app.do("u = udp(7000, '127.0.0.1')")
        one_wait(app, app.do("u.fileno()"), WAYS["udp"], lambda: peer.sendto(b"x", ("127.0.0.1", 7000)), polls)


@pytest.mark.parametrize("way", ["udp", "tcp", "poll", "epoll"])
def test_waits_that_are_too_long_for_any_spin_say_so(net, way):
    net.neighbours()
    nothing = {"poll": "p.poll(50)", "epoll": "e.poll(0.05)"}.get(way, f"{'u' if way == 'udp' else 's'}.recv(10)")
    with App(net.a, True) as app, App(net.b, False) as peer:
        what = prepared(app, peer)[way]
        app.do("for x in (u, s): x.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 0, 50000))")
        first = waits(app, what)
        app.do(f"def turns():\n    for i in range(20):\n        try: {nothing}\n        except BlockingIOError: pass")
        app.do("turns()", 30)
        now = whole(waits(app, what))
        # One that has no processor for 50 ms before it sleeps has waited long enough.
        assert 16 <= now["slept"] - first["slept"] <= 20 and now["slept_long"] - first["slept_long"] >= 10, now
        # Six of them at most were not known to be long.
        assert now["spun_in_vain"] - first["spun_in_vain"] <= 6 and now["spun"] == first["spun"], now


def test_a_set_without_anything_offloaded_says_so(net):
    with App(net.a, True) as app:
        app.do("u = udp(7000); a, b = os.pipe(); e = select.epoll(); e.register(u, select.EPOLLIN); ready(u)")
        app.do("e.unregister(u); e.register(a, select.EPOLLIN); os.write(b, b'x')")
        e = ("epoll", app.do("e.fileno()"))
        first = waits(app, e)
        app.do("os.read(a, 1)")
        app.do("e.poll(0.05)")
        now = whole(waits(app, e))
        assert now["slept_kernel"] - first["slept_kernel"] == now["slept"] - first["slept"], now
        print(now)
