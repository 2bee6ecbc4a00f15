# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Listeners and datagram sockets that several processes have: whoever waits for one is served, whoever waited first."""

import pytest

from differential import CHILDREN, App, differential

families = pytest.mark.parametrize("family", ["4", "6"])

CHILD = CHILDREN + """
def gate(): return os.pipe()
def opened(g): os.read(g[0], 1)
def open_gate(g): os.write(g[1], b'x')
"""


@families
def test_datagrams_reach_who_is_given_the_socket(unet, family):
    """SCM_RIGHTS, and the giver keeps its copy but does not read."""
    def steps(app, peer):
        app.do(CHILD)
        app("s = udp(7000); s.settimeout(5)")
        peer.sendto(b"first", app.at(7000))
        app("s.recv(10)")
        app.do("""
x, y = socket.socketpair()
got = gate()
def run():
    s.close()
    t = socket.socket(fileno=socket.recv_fds(y, 1, 1)[1][0])
    t.settimeout(5)
    open_gate(got)
    d, a = t.recvfrom(100)
    t.sendto(b'given ' + d, a)
y.settimeout(5)
pid = child(run)
socket.send_fds(x, [b'1'], [s.fileno()])
opened(got)
""")
        peer.sendto(b"next", app.at(7000))
        app.note("peer got", peer.recv(100))
        app("wait(pid)")
    differential(unet, family, steps)


@families
def test_datagrams_reach_a_grandchild(unet, family):
    """As a daemon that forks twice, while the first process lives on."""
    def steps(app, peer):
        app.do(CHILD)
        app("s = udp(7000); s.settimeout(5)")
        peer.sendto(b"first", app.at(7000))
        app("s.recv(10)")
        app.do("""
got, reply = gate(), gate()
def grandchild():
    s.settimeout(0.2)
    open_gate(got)
    for _ in range(100):
        try: d, a = s.recvfrom(100)
        except TimeoutError: continue
        s.sendto(b'grandchild ' + d, a)
        break
def run():
    child(grandchild)
assert wait(child(run)) == 0
opened(got)
""")
        peer.settimeout(0.2)
        answer = None
        for _ in range(50):
            peer.sendto(b"next", app.at(7000))
            try:
                answer = peer.recv(100)
                break
            except TimeoutError:
                pass
        app.note("peer got", answer)
    differential(unet, family, steps)


SERVE = CHILD + """
def tcp():
    l = socket.socket(FAM)
    l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    l.bind((ME, 7000))
    l.listen(50)
    l.settimeout(10)
    return l
def serve(l, n, name):
    for _ in range(n):
        s, a = l.accept()
        s.settimeout(10)
        s.sendall(name + b' ' + s.recv(100))
        s.close()
"""


def ask(net, app, text):
    family = 10 if app.family == "6" else 2
    with net.b.socket(family, 1, timeout=10) as c:
        c.connect(app.at(7000))
        c.sendall(text)
        answer = b""
        while d := c.recv(100):
            answer += d
        return answer


@families
def test_a_child_accepts_what_its_parent_only_polls(unet, family):
    """php-fpm, pm = ondemand: the master waits for the listener, forks when a connection comes, and the child accepts it."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp()")
        for i in range(3):
            with unet.b.socket(10 if family == "6" else 2, 1, timeout=10) as c:
                app.start("await_ready(l)")
                c.connect(app.at(7000))
                app.note("ready", app.answer())
                app.do("pid = child(lambda: serve(l, 1, b'child'))")
                c.sendall(b"%d" % i)
                app.note("client got", c.recv(100))
                app.note("and then", c.recv(100))
                app("wait(pid)")
        app.do("pid = child(lambda: serve(l, 2, b'child'))")
        app.note("client got", ask(unet, app, b"a"))
        app.note("client got", ask(unet, app, b"b"))
        app("wait(pid)")
        app.start("serve(l, 1, b'parent')")
        app.note("client got", ask(unet, app, b"c"))
        app.answer()
    differential(unet, family, steps)


@families
@pytest.mark.parametrize("wait", ["l.accept()", "select.select([l], [], [], 10)", "ready(l, 10000)",
                                  "(lambda e: (e.register(l, 1), e.poll(10)))(select.epoll())", "ep.poll(10)"],
                         ids=["accept", "select", "poll", "epoll", "parents-epoll"])
def test_a_child_waits_for_its_parents_listener(unet, family, wait):
    """With several connections that wait already, and several that come."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); ep = select.epoll(); ep.register(l, 1); ready(l)")
        sockets = [unet.b.socket(10 if family == "6" else 2, 1, timeout=10) for _ in range(8)]
        for i, c in enumerate(sockets[:5]):
            c.connect(app.at(7000))
            c.sendall(b"%d" % i)
        app("await_ready(l)")
        if wait == "l.accept()":
            app.do("pid = child(lambda: serve(l, 8, b'child'))")
        else:
            app.do(f"def run():\n for _ in range(8):\n  {wait}\n  serve(l, 1, b'child')\npid = child(run)")
        for i, c in enumerate(sockets[5:]):
            c.connect(app.at(7000))
            c.sendall(b"%d" % (5 + i))
        app.note("clients got", sorted(c.recv(100) for c in sockets))
        app("wait(pid)")
        for c in sockets:
            c.close()
    differential(unet, family, steps)


def test_options_of_a_given_connection(unet):
    """What accept4() asks for, and the peer's name."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); ready(l)")
        with unet.b.socket(kind=1, timeout=10) as c:
            c.bind((unet.b.ip4, 7777))
            c.connect(app.at(7000))
            app("await_ready(l)")
            app.do("""
r, w = os.pipe()
def run():
    s = ctypes.create_string_buffer(16)
    n = ctypes.c_int(16)
    fd = call('accept4', l.fileno(), s, ctypes.byref(n), os.O_NONBLOCK)
    t = socket.socket(fileno=fd)
    os.write(w, repr((s.raw[:8], n.value, fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK != 0, fcntl.fcntl(fd, fcntl.F_GETFD),
                      t.getpeername(), t.getsockname())).encode())
    fd2, _ = l.accept()
    os.write(w, repr((fcntl.fcntl(fd2, fcntl.F_GETFL) & os.O_NONBLOCK != 0, fcntl.fcntl(fd2, fcntl.F_GETFD))).encode())
pid = child(run)
""")
            app("os.read(r, 1000)")
            with unet.b.socket(kind=1, timeout=10) as d:
                d.connect(app.at(7000))
                app("os.read(r, 1000)")
                app("wait(pid)")
    differential(unet, "4", steps)


@families
@pytest.mark.parametrize("giver", ["waits", "does-not"])
def test_who_is_given_a_listener_is_served(unet, family, giver):
    """SCM_RIGHTS, and the giver keeps its copy, on which it has waited before."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); x, y = socket.socketpair(); y.settimeout(10); got = gate()")
        if giver == "waits":
            app("ready(l)")
        app.do("""
def run():
    l.close()
    t = socket.socket(fileno=socket.recv_fds(y, 1, 1)[1][0])
    t.settimeout(10)
    open_gate(got)
    serve(t, 2, b'given')
pid = child(run)
socket.send_fds(x, [b'1'], [l.fileno()])
opened(got)
""")
        app("ready(l)")
        app.note("client got", ask(unet, app, b"a"))
        app("ready(l)")
        app.note("client got", ask(unet, app, b"b"))
        app("wait(pid)")
    differential(unet, family, steps)


def test_a_child_that_only_runs_a_program_costs_nothing(net):
    """The parent's listener stays offloaded."""
    with App(net.a, True) as app:
        app.do(SERVE)
        app.do("import subprocess; l = tcp(); ready(l)")
        app.do("wait(child(lambda: None)); subprocess.run(['true']); os.system('true')")
        before = net.a.counters()["TcpPassiveOpens"]
        app.start("serve(l, 3, b'parent')")
        assert [ask(net, app, b"x") for _ in range(3)] == [b"parent x"] * 3
        app.answer()
        assert net.a.counters()["TcpPassiveOpens"] == before


def test_the_listener_of_a_parent_that_has_gone(net):
    """daemon(3) after the listener was waited on: the child has it, offloaded, and nothing is complained of."""
    with App(net.a, True, env={"VMA_TRACELEVEL": "WARN"}) as app:
        app.do(SERVE)
        app.do("""
l = tcp()
r, w = os.pipe()
def middle():
    ready(l)
    pid = child(lambda: (os.read(r, 1), serve(l, 4, b'child')))
    os._exit(0)
assert wait(child(middle)) == 0
os.write(w, b'x')
l.close()
""")
        answers = [ask(net, app, b"x") for _ in range(4)]
        assert answers == [b"child x"] * 4
        assert "has ended with it" not in app.text, app.text
