# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Listeners and datagram sockets that several processes have: whoever waits for one is served, whoever waited first."""

import contextlib
import fcntl
import os
import pathlib
import signal
import socket
import struct
import subprocess

import pytest

from differential import CHILDREN, App, differential
from netns import KERNEL, PATIENCE, go_on, stop, stopped, wait_for

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


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_a_wait_in_a_child_for_what_its_parent_added_later(unet, timeout):
    """
    The kernel's epoll is both processes'. After the fork() the parent adds a socket to it that is ready and stays so: the child,
    which has no such socket, cannot tell of it, and ends with its time all the same.
    """
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do(CHILD)
        app.do(f"""
ep, added = select.epoll(), gate()
def run():
    opened(added)
    for _ in range(3): ep.poll({timeout})
s = udp(7000)
pid = child(run)
""")
        peer.sendto(b"stays in the kernel's queue", app.at(7000))
        app.do("ep.register(s, 1)")
        assert app.do("len(ep.poll(5))") == 1
        app.do("open_gate(added)")
        assert app.do("wait(pid)") == 0
        print(f"three calls of the child's for {timeout} s have ended")
        peer.close()


@families
@pytest.mark.parametrize("how", ["child", "exec", "spawn", "given"])
def test_datagrams_that_wait_are_there_for_another_process(unet, family, how):
    """
    The parent has used the socket, and more has come that it has not read: a child, the program that it becomes or
    starts, and who is given the socket find all of it, first what came first.
    """
    program = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); s.settimeout(5); print([s.recvfrom(9000) for _ in range(5)])"

    def steps(app, peer):
        app.do(CHILD)
        app.do("import subprocess, sys; s = udp(7000); s.settimeout(5)")
        peer.sendto(b"first", app.at(7000))
        app("s.recv(10)")
        for size in (1, 1000, 1000, 0, 77):
            peer.sendto(b"x" * size, app.at(7000))
        app("len(s.recv(9000, socket.MSG_PEEK))")
        if how in ("exec", "spawn"):
            app.do("out = os.pipe(); os.set_inheritable(out[1], True); os.set_inheritable(s.fileno(), True)")
            app.do(f"argv = [sys.executable, '-c', {program!r}, str(s.fileno())]")
        if how == "exec":
            app.do("def run():\n os.dup2(out[1], 1); os.execv(argv[0], argv)\npid = child(run)")
        elif how == "spawn":
            app.do("os.set_inheritable(out[1], False); p = subprocess.Popen(argv, close_fds=False, stdout=out[1]); pid = p.pid")
        elif how == "child":
            app.do("out = os.pipe()\ndef run():\n os.write(out[1], repr([s.recvfrom(9000) for _ in range(5)]).encode() + b'\\n')\n"
                   "pid = child(run)")
        else:
            app.do("out = os.pipe(); x, y = socket.socketpair(); y.settimeout(10)")
            app.do("""
def run():
    s.close()
    t = socket.socket(fileno=socket.recv_fds(y, 1, 1)[1][0])
    t.settimeout(5)
    os.write(out[1], repr([t.recvfrom(9000) for _ in range(5)]).encode() + b'\\n')
pid = child(run)
socket.send_fds(x, [b'1'], [s.fileno()])
""")
        app.do("os.close(out[1])")
        app("[len(d) for d, _ in eval(os.read(out[0], 65536))]")
        app("wait(pid)")
        peer.sendto(b"after", app.at(7000))
        app("s.recv(10)")
    differential(unet, family, steps)


# How a thread waits for a connection while another one gives it to a child.
WAITS = {
    "poll": "(lambda p: (p.register(c, select.POLLIN), p.poll(8000))[1])(select.poll())",
    "select": "select.select([c], [], [], 8)[0]",
    "epoll": "(lambda p: (p.register(c, select.EPOLLIN), p.poll(8))[1])(select.epoll())",
    "recv": "[c.recv(10, socket.MSG_PEEK)]",
}


@pytest.mark.parametrize("wait", WAITS)
def test_who_waits_for_a_connection_that_goes_to_a_child_is_woken(unet, wait):
    """system() in one thread gives the connection to the kernel; what comes then wakes the other, who has waited all the time."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("import threading, time; l = tcp(); ready(l)")
        with unet.b.socket(kind=1, timeout=10) as s:
            s.connect(app.at(7000))
            s.sendall(b"a")
            app("await_ready(l); c = l.accept()[0]; c.settimeout(None); c.set_inheritable(True); c.recv(1)")
            app.do(f"""
found = []
def waits():
    found.append(len({WAITS[wait]}))
t = threading.Thread(target=waits)
t.start()
while open('/proc/self/task/%d/stat' % t.native_id).read().rsplit(')', 1)[1].split()[0] != 'S': time.sleep(0.001)
""")
            app("os.system('true')")
            s.sendall(b"b")
            app("t.join(), found, c.recv(10)")
    differential(unet, "4", steps)


def test_datagrams_that_find_no_room_in_the_kernel_are_not_lost(unet):
    """More wait than the kernel socket takes: who is given the socket has the first ones, the rest can be read where they came."""
    with App(unet.a, True) as app:
        peer = app.peer_socket()
        app.do("s = udp(7000); s.settimeout(5); x, y = socket.socketpair(); out = os.pipe(); out2 = os.pipe()")
        peer.sendto(b"first", app.at(7000))
        app.do("s.recv(10)")
        for i in range(0, 600, 60):
            for k in range(i, i + 60):
                peer.sendto(b"%060d" % k, app.at(7000))
            assert app.do("len(s.recv(100, socket.MSG_PEEK))") == 60  # takes them off the ring
        app.do(CHILD)
        app.do("""
def run():
    s.close()
    t = socket.socket(fileno=socket.recv_fds(y, 1, 1)[1][0])
    got = []
    t.settimeout(5)
    while True:
        try: got.append(int(t.recv(100)))
        except (TimeoutError, BlockingIOError): break
        t.settimeout(0)
    os.write(out[1], repr(got).encode())
pid = child(run)
socket.send_fds(x, [b'1'], [s.fileno()])
os.close(out[1])
def rest():
    s.setblocking(False)
    got = []
    while True:
        try: got.append(int(s.recv(100)))
        except BlockingIOError: return got
""")
        there = app.do("eval(os.read(out[0], 65536))")
        assert app.do("wait(pid)") == 0
        here = app.do("rest()")
        print(len(there), "there,", len(here), "here")
        assert there + here == list(range(600)) and there
        peer.close()


def test_datagrams_of_both_families_that_wait(unet):
    """In the queue of one socket, which a child reads then: IPv4 and IPv6 by turns."""
    def steps(app, peer):
        app.do(CHILD)
        app.do("s = udp(7000, ANY); s.settimeout(5); out = os.pipe()")
        with unet.b.socket(2, 2, timeout=5) as peer4:
            peer4.sendto(b"first", (unet.a.ip4, 7000))
            app("s.recv(10)")
            for i in range(6):
                if i % 2:
                    peer.sendto(b"six %d" % i, (unet.a.ip6, 7000))
                else:
                    peer4.sendto(b"four %d" % i, (unet.a.ip4, 7000))
            app("len(s.recv(10, socket.MSG_PEEK))")
            app.do("pid = child(lambda: os.write(out[1], repr(sorted(s.recv(10) for _ in range(6))).encode()))")
            app("os.close(out[1]); os.read(out[0], 1000)")
            app("wait(pid)")
    differential(unet, "6", steps)


# What a service does that is started with a listener: it accepts what waits, and answers.
SERVICE = """
import os, socket, sys
l = socket.socket(fileno=int(sys.argv[1]))
l.settimeout(30)
for _ in range(int(sys.argv[2])):
    s, a = l.accept()
    s.settimeout(30)
    text = b''
    while b'.' not in text: text += s.recv(65536)
    s.sendall(b'service got %d from %d' % (len(text), a[1]))
    s.close()
"""


@pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
@families
@pytest.mark.parametrize("how", ["exec", "child", "spawn"])
def test_connections_that_wait_are_there_for_a_program(unet, family, how):
    """Who has waited for the listener starts a program with it, or becomes one: the connections that had come are its own."""
    def steps(app, peer):
        app.do(SERVE)
        app.do(f"import subprocess, sys; l = tcp(); os.set_inheritable(l.fileno(), True); argv = [sys.executable, '-c', {SERVICE!r}]")
        app.do("argv += [str(l.fileno()), '4']; waited, go = gate(), gate()")
        if how == "exec":
            app.do("def run():\n ready(l); open_gate(waited); opened(go); os.execv(argv[0], argv)\npid = child(run)")
            app.do("opened(waited)")
        else:
            app.do("ready(l)")
        sockets = [unet.b.socket(10 if family == "6" else 2, 1, timeout=10) for _ in range(4)]
        for i, c in enumerate(sockets[:3]):
            c.connect(app.at(7000))
            c.sendall(b"x" * (3000 * i) + b"." * (i != 1))
        if how == "exec":
            app.do("open_gate(go)")
        elif how == "child":
            app.do("await_ready(l); pid = child(lambda: os.execv(argv[0], argv))")
        else:
            app.do("await_ready(l); p = subprocess.Popen(argv, close_fds=False); pid = p.pid")
        sockets[1].sendall(b".")
        for i, c in enumerate(sockets[:3]):
            port = c.getsockname()[1]
            app.note(f"client {i} got", c.recv(100).replace(str(port).encode(), b"its port"))
            app.note("and then", c.recv(100))
        sockets[3].connect(app.at(7000))
        sockets[3].sendall(b".")
        app.note("the last got", sockets[3].recv(100).startswith(b"service got 1 "))
        app("wait(pid)")
        for c in sockets:
            c.close()
    differential(unet, family, steps)


@pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
@families
def test_a_client_whose_port_had_another_that_the_kernel_has_closed(unet, family):
    """What is left of that one (TIME_WAIT) does not keep a program that is started from getting this one."""
    def client(app):
        c = unet.b.socket(10 if family == "6" else 2, 1, timeout=10)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        c.bind((unet.b.ip(int(family)), 7778))
        c.connect(app.at(7000))
        c.sendall(b".")
        return c

    def steps(app, peer):
        app.do(SERVE)
        app.do(f"import subprocess, sys; argv = [sys.executable, '-c', {SERVICE!r}]")
        for turn in range(2):
            app.do("l = tcp(); l.set_inheritable(True)")
            app.do("ready(l)")
            with client(app) as c:
                app.do("await_ready(l)")
                app.do("p = subprocess.Popen([*argv, str(l.fileno()), '1'], close_fds=False)")
                app.note(f"turn {turn}", c.recv(100))
                app.note("and then", c.recv(100))
                app("p.wait()")
            app.do("l.close()")
            # Its end is the listener's side's: the kernel remembers it for a minute.
            wait_for(lambda: "7778" in unet.a.run(["ss", "-Htan", "state", "time-wait"]).text, 5, "the end of the connection")
    differential(unet, family, steps)


@pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
@families
@pytest.mark.parametrize("closes", ["parent", "child"])
def test_clients_that_wait_when_one_of_two_closes(unet, family, closes):
    """Who has waited for the listener closes it and lives on: the other one, who has it too, accepts what had come."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); waited, come, closed, end = gate(), gate(), gate(), gate()")
        app.do("def leave(): ready(l); open_gate(waited); opened(come); await_ready(l); l.close(); open_gate(closed); opened(end)")
        if closes == "parent":
            app.do("pid = child(lambda: (opened(closed), serve(l, 3, b'other')))")
            app.do("import threading; t = threading.Thread(target=leave); t.start()")
        else:
            app.do("pid = child(leave)")
        app.do("opened(waited)")
        sockets = [unet.b.socket(10 if family == "6" else 2, 1, timeout=10) for _ in range(3)]
        for i, c in enumerate(sockets):
            c.connect(app.at(7000))
            c.sendall(b"%d" % i)
        app.do("open_gate(come)")
        if closes == "child":
            app.do("opened(closed)")
            app.start("serve(l, 3, b'other')")
        for c in sockets:
            app.note("client got", c.recv(100))
            app.note("and then", c.recv(100))
            c.close()
        if closes == "child":
            app.answer()
        app.do("open_gate(end)")
        app("wait(pid)")
        if closes == "parent":
            app.do("t.join()")
    differential(unet, family, steps)


@pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
@families
@pytest.mark.parametrize("wait", ["", "select.select([l], [], [], 10)"], ids=["accept", "select"])
def test_each_of_several_children_has_clients(unet, family, wait):
    """
    Each serves one client at a time, for as long as it stays; the parent only forks. A client that comes to a busy child is
    another one's: there are as many of both.
    """
    with App(unet.a, True, family) as app:
        app.do(SERVE)
        app.do(f"""
l = tcp()
def run():
    l.setblocking({not wait})
    for _ in range(2):
        while True:
            {wait or 'pass'}
            try: s, _ = l.accept()
            except BlockingIOError: continue
            break
        s.setblocking(True)
        s.sendall(b'%d' % os.getpid())
        s.recv(1)
        s.close()
pids = [child(run) for _ in range(3)]
""")
        for turn in range(2):
            clients, served = [], []
            for _ in range(3):
                c = unet.b.socket(10 if family == "6" else 2, 1, timeout=20)
                c.connect(app.at(7000))
                clients.append(c)
                served.append(int(c.recv(100)))
            print("turn", turn, "served by", served)
            assert sorted(served) == sorted(app.do("pids"))
            for c in clients:
                c.close()
        assert app.do("[wait(pid) for pid in pids]") == [0, 0, 0]


@pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
@families
@pytest.mark.parametrize("burst, served", [(18000, True), (10000, False)], ids=["late", "never"])
def test_a_client_of_whom_the_kernel_gets_a_part(unet, family, burst, served):
    """
    What it has sent goes once more over the loopback, in two pieces. There the second one is late, or the first one is never
    let through (a packet larger than tbf's bucket): what is missing is sent again, or the client is told that nobody has it.
    Another one, which has sent less, is served either way.
    """
    with App(unet.a, True, family) as app:
        app.do(SERVE)
        app.do("l = tcp(); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20); ready(l)")
        app.do("""
def run():
    for _ in range(2):
        s, _ = l.accept()
        s.settimeout(10)
        text = b''
        try:
            while b'.' not in text: text += s.recv(65536)
        except ConnectionResetError: continue
        s.sendall(b'child got %d' % len(text))
        s.close()
go = gate()
pid = child(lambda: (opened(go), run()))
""")
        clients = [unet.b.socket(10 if family == "6" else 2, 1, timeout=10) for _ in range(2)]
        for c, size in zip(clients, (20000, 100)):
            c.connect(app.at(7000))
            c.sendall(b"x" * (size - 1) + b".")
        app.do("await_ready(l)")
        wait_for(lambda: not unsent(clients[0]), what="that the client's data has come")
        tc = ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "8mbit", "burst", str(burst), "limit", "100000"]
        unet.a.run(tc)
        try:
            app.do("open_gate(go)")
            answers = []
            for c in clients:
                try:
                    answers.append(c.recv(100))
                except ConnectionResetError:
                    answers.append("reset")
                c.close()
            print("the clients got", answers)
            # On a busy machine the loopback may show nothing for so long that the parent hands the connection over itself.
            assert answers[0] in ([b"child got 20000"] if served else ["reset", b"child got 20000"])
            assert answers[1] == b"child got 100"
            assert app.do("wait(pid)") == 0
        finally:
            unet.a.run(["tc", "qdisc", "del", "dev", "lo", "root"])


# Why the kernel's listener does not take a client that waits, and what the client has sent.
REFUSED = {
    "no-cookies": (True, "", None, 3000),
    "small-mss": (False, "", 400, 3000),
    "small-buffer": (False, "l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)", None, 3500),
    "no-timestamps-now": (False, "open('/proc/sys/net/ipv4/tcp_timestamps', 'w').write('0')", None, 3000),
}


@families
@pytest.mark.parametrize("why", REFUSED)
def test_a_client_that_the_kernels_listener_refuses_stays(unet, family, why):
    """It has sent something, and waits: the child that accepts gets it with all of that, and nobody says RST to it."""
    no_cookies, option, mss, size = REFUSED[why]

    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); ready(l)")
        if option.startswith("l."):
            app.do(option)
        with unet.b.socket(10 if family == "6" else 2, 1, timeout=10) as c:
            if mss:
                c.setsockopt(6, 2, mss)  # TCP_MAXSEG
            c.connect(app.at(7000))
            c.sendall(b"x" * size)
            app("await_ready(l)")
            if option.startswith("open"):
                app.do(option)
            app.do(f"""
def run():
    s, _ = l.accept()
    s.settimeout(5)
    n = 0
    while n < {size}: n += len(s.recv(65536))
    s.sendall(b'child got %d' % n)
pid = child(run)
""")
            app.note("client got", c.recv(100))
            app.note("and then", c.recv(100))
            app("wait(pid)")

    unet.a.run(["sysctl", "-qw", f"net.ipv4.tcp_syncookies={0 if no_cookies else 1}"])
    try:
        differential(unet, family, steps)
    finally:
        unet.a.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=1", "net.ipv4.tcp_timestamps=1"])


@families
def test_a_given_connection_that_was_reset_has_its_name(unet, family):
    """getpeername() knows none then; accept() tells it all the same."""
    def steps(app, peer):
        app.do(SERVE)
        app.do("l = tcp(); ready(l)")
        c = unet.b.socket(10 if family == "6" else 2, 1, timeout=10)
        c.bind((unet.b.ip(int(family)), 7777))
        c.connect(app.at(7000))
        c.sendall(b"x")
        app("await_ready(l)")
        app.do("""
r, w = os.pipe()
waits, reset = gate(), gate()
def run():
    ready(l, 10000)
    open_gate(waits)
    opened(reset)
    s, n = ctypes.create_string_buffer(28), ctypes.c_int(28)
    t = socket.socket(fileno=call('accept4', l.fileno(), s, ctypes.byref(n), 0))
    os.write(w, repr((s.raw[:n.value], n.value, t.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))).encode())
pid = child(run)
opened(waits)
""")
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
        app.do("open_gate(reset)")
        app("os.read(r, 1000)")
        app("wait(pid)")

    # So the kernel's listener cannot have it (REFUSED), and the child gets it from its parent.
    unet.a.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=0"])
    try:
        differential(unet, family, steps)
    finally:
        unet.a.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=1"])


def unsent(s):
    """Bytes that the peer has not acknowledged (SIOCOUTQ)."""
    return struct.unpack("i", fcntl.ioctl(s, 0x5411, b"\0" * 4))[0]


# Under another uid: connects and sends to each socket that has a name of the kernel's choice, with a descriptor that says "stranger".
STRANGER = """
import os, re, socket, sys
os.setuid(65534)
names = {m[1] for m in re.finditer(r"@([0-9a-f]{5})$", open("/proc/net/unix").read(), re.M)}
reached = 0
for name in names:
    for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        x, y = socket.socketpair()
        x.sendall(b"stranger")
        s = socket.socket(socket.AF_UNIX, kind)
        s.setblocking(False)  # the owner reads nothing meanwhile
        try:
            s.connect(b"\\0" + name.encode())
            socket.send_fds(s, [b"x"], [y.fileno()])
            reached += 1
        except OSError: pass
print("reached", reached, flush=True)
"""


def names(host):
    """Those that sockets of the host have (unix(7), abstract)."""
    text = host.run(["cat", "/proc/net/unix"]).text
    return {w[-1] for w in map(str.split, text.splitlines()) if w[-1].startswith("@")}


def listens_with_a_child(app, go):
    """Of App: l, and pid, which asks for l when that file is there."""
    app.do(SERVE)
    app.do("import time; l = tcp(); ready(l)")
    app.do(f"def run():\n while not os.path.exists({str(go)!r}): time.sleep(0.01)\n serve(l, 1, b'child')\npid = child(run)")


def test_a_stranger_gives_no_connection_to_a_child_that_waits(net, tmp_path):
    """The parent is stopped while the child waits for its answer: what another user sends meanwhile is not accepted."""
    go = tmp_path / "go"
    with App(net.a, True) as app:
        listens_with_a_child(app, go)
        with net.b.socket(kind=1, timeout=20) as c:
            c.connect(app.at(7000))
            c.sendall(b"client")
            app.do("await_ready(l)")
            before = names(net.a)
            with stopped(app.pid):
                go.touch()
                wait_for(lambda: names(net.a) - before, what="the socket by which the child is answered")
                stranger = net.a.python(STRANGER)
                assert stranger.wait() == 0, stranger.text
            print(stranger.text)
            assert "reached 0" not in stranger.text
            assert c.recv(100) == b"child client"
        assert app.do("wait(pid)") == 0


# Under another uid: has the name by which a child that has died was to be answered, and says what comes there.
HEIR = """
import os, socket, sys
os.setuid(65534)
l = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
l.bind(b"\\0" + sys.argv[1].encode())
l.listen(5)
print("ready", flush=True)
s = l.accept()[0]
s.settimeout(10)
print("got", socket.recv_fds(s, 10, 8)[1], flush=True)
"""


def test_a_stranger_with_the_name_of_a_child_that_has_died_gets_no_client(net, tmp_path):
    """The owner is stopped until the child, which has asked it for the listener, is dead and its name somebody else's."""
    net.a.run(["sysctl", "-qw", "net.ipv4.tcp_syncookies=0"])  # so nothing can wait in the kernel
    go = tmp_path / "go"
    with App(net.a, True) as app:
        listens_with_a_child(app, go)
        with net.b.socket(kind=1, timeout=20) as c:
            c.connect(app.at(7000))
            c.sendall(b"client")
            app.do("await_ready(l)")
            before, pid = names(net.a), app.do("pid")
            with stopped(app.pid):
                go.touch()
                wait_for(lambda: names(net.a) - before, what="the socket by which the child is answered")
                name, = names(net.a) - before
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda: name not in names(net.a), what="the child's end")
                stranger = net.a.python(HEIR, False, [name[1:]])
                stranger.wait_text("^ready$")
            assert app.do("wait(pid)") == -signal.SIGKILL
            stranger.wait_text("^got ")
            print(stranger.text)
            assert "got []" in stranger.text
            app.do("serve(l, 1, b'parent')")
            assert c.recv(100) == b"parent client"


# A thread that accepts, and a program without the library that has the listener, too: it takes one client when it is told to.
WITH_A_STRANGER = """
import os, socket, subprocess, sys, threading
l = socket.create_server(("0.0.0.0", 7041))
os.set_inheritable(l.fileno(), True)
stranger = subprocess.Popen([sys.executable, "-u", "-c", f'''
import os, select, socket
l = socket.socket(fileno={l.fileno()})
print("stranger", "libvma" in open("/proc/self/maps").read())
input()
print("stranger has", l.accept()[0].recv(99))
'''], stdin=subprocess.PIPE, close_fds=False, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
def accepts():
    print("thread", threading.get_native_id())
    print("accepted", l.accept()[0].recv(99))
thread = threading.Thread(target=accepts)
thread.start()
sys.stdin.readline()
stranger.stdin.write(b"\\n")
stranger.stdin.close()
stranger.wait()
sys.stdin.readline()
l.listen(7)
print("the listener is free")
thread.join()
"""


@contextlib.contextmanager
def delayed(thread):
    """strace on the thread, which has its next accept4() wait two seconds and more before it begins."""
    delay = ["-e", "trace=accept4", "-e", f"inject=accept4:delay_enter={int(2e6 * PATIENCE)}:when=1"]
    strace = subprocess.Popen(["strace", "-p", str(thread), *delay], stderr=subprocess.PIPE)
    with strace.stderr:
        try:
            assert b"attached" in strace.stderr.readline()
            yield strace
        finally:
            strace.kill()
            strace.wait()


def test_a_stranger_takes_the_client_that_was_seen(net):
    """Between poll() and accept4(), as strace sees to it: who sleeps in the kernel's accept4() then holds no lock."""
    read, write = os.pipe()
    app = net.a.python(WITH_A_STRANGER, preload=True, stdin=read)
    os.close(read)
    thread = int(app.wait_text(r"^thread (\d+)").group(1))
    app.wait_text("^stranger False")
    with delayed(thread) as strace, net.b.socket(kind=socket.SOCK_STREAM) as first, net.b.socket(kind=socket.SOCK_STREAM) as second:
        first.connect((net.a.ip4, 7041))
        first.sendall(b"first")
        assert strace.stderr.read(len("accept4")) == b"accept4"
        stop(strace.pid)  # so the call does not begin before the client has gone
        os.write(write, b"\n")
        app.wait_text("^stranger has b'first'")
        go_on(strace.pid)
        status = pathlib.Path(f"/proc/{app.pid}/task/{thread}/status")
        wait_for(lambda: "\nState:\tS" in status.read_text(), 20, "the thread to sleep in accept4()")
        os.write(write, b"\n")
        os.close(write)
        app.wait_text("^the listener is free")
        second.connect((net.a.ip4, 7041))
        second.sendall(b"second")
        app.wait_text("^accepted b'second'")
        assert app.wait() == 0, app.text
