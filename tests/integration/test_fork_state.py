# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a child of fork() has of its parent's library: nothing but what docs/design.md ("Life of a process") says, room by room."""

import pathlib
import re
import select
import time

from differential import App
from netns import PATIENCE, ROOT, ip

# Descriptors by what they are: a socket by its family, anything else by what /proc shows.
FDS = """
AF_XDP, AF_PACKET, AF_NETLINK, SO_DOMAIN = 44, 17, 16, 39
def fds():
    seen = []
    for n in os.listdir('/proc/self/fd'):
        try: to = os.readlink('/proc/self/fd/' + n)
        except OSError: continue
        if to.startswith('socket:'):
            v, size = (ctypes.c_int * 2)(), ctypes.c_int(4)
            for i, opt in enumerate((SO_DOMAIN, socket.SO_TYPE)):
                call('getsockopt', int(n), 1, opt, ctypes.byref(v, 4 * i), ctypes.byref(size))
            to = 'socket %d type %d' % tuple(v)
        seen.append((int(n), to))
    return seen
def xsks(): return sum(1 for _, t in fds() if t.startswith('socket %d ' % AF_XDP))
def in_child(fn):
    r, w = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            try: answer = fn()
            except BaseException as e: answer = 'child: %r' % e
            os.write(w, repr(answer).encode())
        finally:
            os._exit(0)
    os.close(w)
    text = b''
    while d := os.read(r, 65536): text += d
    os.close(r)
    status = os.waitpid(pid, 0)[1]
    return eval(text) if not status else 'child: status %d after %r' % (status, text)
"""

# What a process has while it uses everything, and no child may have.
LIBRARYS = re.compile(r"socket (44|17|16) |socket 2 type 3|anon_inode:(bpf|\[timerfd\]|\[pidfd\])|/dev/vma|socket 1 ")


def second_link(net):
    """Another pair of interfaces between the two."""
    ip("-n", net.a.name, "link", "add", "veth-c", "type", "veth", "peer", "name", "veth-d", "netns", net.b.name)
    for host, dev, address in ((net.a, "veth-c", "10.78.0.1/24"), (net.b, "veth-d", "10.78.0.2/24")):
        ip("-n", host.name, "addr", "add", address, "dev", dev)
        ip("-n", host.name, "link", "set", dev, "up")


def test_no_descriptor_or_thread_goes_along(net):
    """Rings, netlink, timers, the worker, port claims: with a ring open, UDP, a listener, a connection and an epoll set in use."""
    with App(net.a, True) as app:
        peer = app.peer_socket()
        app.do(FDS)
        app.do("s = udp(7000); s.settimeout(5); e = select.epoll(); e.register(s, 1); e.poll(0)")
        peer.sendto(b"x", app.at(7000))
        app.do("s.recv(10)")
        app.do("l = socket.socket(); l.bind((ME, 7000)); l.listen(9); l.setblocking(False); ready(l)")
        with net.b.socket(kind=1) as c:
            c.connect((net.a.ip4, 7000))
            app.do("await_ready(l); t = l.accept()[0]")
            before = app.do("fds()")
            print("the parent has", sorted(t for _, t in before if LIBRARYS.match(t)))
            assert any(t.startswith("socket 44 ") for _, t in before) and any("bpf" in t for _, t in before)
            child = app.do("in_child(fds)")
            kept = [(n, t) for n, t in child if LIBRARYS.match(t)]
            assert not kept, f"the child has {kept}"
            assert app.do("in_child(lambda: len(os.listdir('/proc/self/task')))") == 1
            # epoll's and eventfds look alike: no more than the program's own, the claim of its datagram sockets, and that of the
            # thread that forked, if it ever slept: the child closes it when it first sleeps itself.
            assert sum("eventpoll" in t for _, t in child) == 1, child
            assert sum("eventfd" in t for _, t in child) <= 2, child
        peer.close()


def test_a_child_made_while_clients_go_to_the_kernel(net):
    """Another thread gives a listener away whose clients wait: what that opens for the time is not the child's."""
    with App(net.a, True) as app:
        app.do(FDS)
        app.do("import threading; x, y = socket.socketpair(); children = 0")
        kept = set()
        for port in range(7000, 7020):
            app.do(f"l = socket.socket(); l.bind((ME, {port})); l.listen(9); l.setblocking(False); ready(l)")
            with net.b.socket(kind=1) as c:
                c.connect((net.a.ip4, port))
                app.do("await_ready(l); t = threading.Thread(target=socket.send_fds, args=(x, [b'x'], [l.fileno()])); t.start(); seen = []")
                app.do("while t.is_alive(): seen += in_child(fds); children += 1")
                kept |= {t for _, t in app.do("seen") if LIBRARYS.match(t) and t != "socket 1 type 1"}
                app.do("t.join(); l.close()")
        print(app.do("children"), "children")
        assert not kept, f"children have {kept}"


def test_the_ring_of_a_vanished_interface(net):
    """It is kept for two seconds. A child that forks meanwhile has none of it; its own ring, memory and descriptors stay whole."""
    net.neighbours(v6=False)
    with App(net.a, True) as app:
        peer = app.peer_socket()
        app.do(FDS)
        app.do("s = udp(7000); s.settimeout(5)")
        peer.sendto(b"x", app.at(7000))
        app.do("s.recv(10)")
        peer.close()
        assert app.do("xsks()") >= 1
        second_link(net)
        app.do("""
import mmap
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
def shared_maps():
    for line in open('/proc/self/maps'):
        f = line.split()
        if 's' in f[1] and ('/dev/zero' in line or 'memfd:vma-port' in line):
            a, b = (int(x, 16) for x in f[0].split('-'))
            if b - a >= 1 << 20: yield a, b - a
def on_the_other(maps):
    # Something of the child's where the parent's rings lie, and a ring of its own. (Some of it is the child's already.)
    pages = [a + i for a, n in maps for i in range(0, n, 1 << 16)]
    pages = [a for a in pages if LIBC.mmap(a, 1 << 16, 3, 0x100000 | 0x22, -1, 0) == a and ctypes.memset(a, 7, 1 << 16)]
    had = xsks()
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(('10.78.0.1', 7000))
    u.settimeout(5)
    u.sendto(b'ring', ('10.78.0.2', 7001))
    rings, before = xsks(), None
    # What the thread had that opened the ring goes with it.
    while before != fds():
        before = fds()
        time.sleep(0.1)
    # Two seconds and more, in which the ring works.
    end = time.monotonic() + 2.6
    while time.monotonic() < end:
        u.sendto(b'?', ('10.78.0.2', 7001))
        assert u.recv(10) == b'!'
        time.sleep(0.05)
    whole = sum(ctypes.string_at(a, 1 << 16) == b'\\7' * (1 << 16) for a in pages)
    return had, rings, [f for f in before if f not in fds()], len(pages), whole
""")
        other = net.b.socket(timeout=20)
        other.bind(("10.78.0.2", 7001))
        maps = app.do("maps = list(shared_maps())") or app.do("maps")
        ip("-n", net.a.name, "link", "del", net.a.dev)
        samples = []
        answered = None
        end = time.monotonic() + 20
        while (mine := app.do("xsks()")) and time.monotonic() < end:
            samples.append((mine, app.do("in_child(xsks)")))
            # Once the parent has shut the stack: its ring is retired, not yet closed.
            if answered is None and not app.do("os.path.exists('/sys/class/net/%s') or "
                                               "any('%s' in l for l in open('/proc/net/dev'))" % (net.a.dev, net.a.dev)):
                time.sleep(0.3)
                app.start("in_child(lambda: on_the_other(maps))")
                answered = serve(app, other)
        other.close()
        print(f"maps {maps}; (parent's, child's) AF_XDP sockets: {samples}; the other interface: {answered}")
        assert isinstance(answered, tuple), answered
        had, rings, lost, pages, whole = answered
        assert samples and all(theirs == 0 for _, theirs in samples), samples
        assert had == 0 and rings >= 1, "the child opens a ring of its own"
        assert not lost, "descriptors that are the child's were closed"
        assert whole == pages >= 16, "memory that is the child's was unmapped"


def serve(app, other):
    """Answers the child until it is done; what the application says."""
    while other in select.select([other, app.popen.stdout], [], [], 30 * PATIENCE)[0]:
        data, address = other.recvfrom(10)
        if data == b"?":
            other.sendto(b"!", address)
    return app.answer(20)


def test_parameters_hold_when_the_program_replaces_its_environment(net, tmp_path):
    """As nginx's workers do."""
    pages = tmp_path / "pages"
    pages.mkdir()
    with App(net.a, True, env={"VMA_STATS_SHMEM_DIR": str(pages), "VMA_LOG_FILE": f"{tmp_path}/log.%d", "VMA_TRACELEVEL": "DEBUG"}) as app:
        app.do(FDS)
        app.do("s = udp(7000); LIBC.clearenv()")
        pid = app.do(f"in_child(lambda: (udp(7001), os.getpid(), os.listdir({str(pages)!r}))[1:])")
        print(pid, sorted(p.name for p in tmp_path.iterdir()))
        assert f"vmastat.{pid[0]}" in pid[1], pid
        assert (tmp_path / f"log.{pid[0]}").exists() and "VMA" in (tmp_path / f"log.{pid[0]}").read_text()


LOCK = re.compile(r"^(?:static )?(?:pthread_mutex_t|struct lock) (\w+)(?: = .*)?;", re.M)
# Held by who forks, or remade where the room's state is.
ELSEWHERE = {
    "lib/runtime/own_fd.c": {"own_lock": "who forks holds it: own_fd_limit_lock(), own_fd_forked()"},
    "lib/fd/table.c": {"vfd_table_lock": "who forks holds it: vfd_fork_prepare(), vfd_fork_child()"},
    "lib/ring/xdp/port.c": {"libxdp_lock": "who forks holds it: ring_fork_prepare(), ring_fork_end()"},
}


def functions(text):
    """(name, body) of each function of a C file."""
    return re.findall(r"^(?:[a-z_]\w*[\w *]*?)(\w+)\([^;]*?\)\n\{\n(.*?)^\}", text, re.M | re.S)


def test_no_lock_stays_taken_in_a_child():
    """Another thread of the parent's may hold any of them at the fork(): each is made anew by its file's _forked function."""
    found = []
    for path in sorted((ROOT / "lib").rglob("*.c")):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        after = "".join(body for fn, body in functions(text) if "fork" in fn)
        for lock in LOCK.findall(text):
            made = re.search(rf"(pthread_mutex_init\(&{lock}\b|atomic_store\(&{lock}\.owner, 0\)|memset\(&{lock}\b)", after)
            found.append((name, lock, bool(made) or lock in ELSEWHERE.get(name, {})))
    left = [f"{name}: {lock}" for name, lock, made in found if not made]
    print(f"{len(found)} locks")
    assert len(found) > 15
    assert not left, "\n".join(["stays as another thread of the parent's had it:", *left])


def test_the_table_in_design_names_them_all():
    """docs/design.md: each *_forked() that library_forked_child() reaches, and each pthread_atfork()."""
    text = (pathlib.Path(ROOT) / "docs/design.md").read_text()
    table = text[text.index("### At fork()"):]
    start = (ROOT / "lib/preload/start.c").read_text()
    body = dict(functions(start))["library_forked_child"]
    names = set(re.findall(r"\b(\w+_forked)\(", body))
    for path in (ROOT / "lib").rglob("*.c"):
        code = path.read_text()
        if "\tpthread_atfork(" in code:
            names.add(path.relative_to(ROOT / "lib").as_posix())
    missing = sorted(n for n in names if n not in table)
    print(sorted(names))
    assert len(names) >= 10 and not missing, f"not in docs/design.md: {missing}"


def test_a_process_without_sockets_forks_again_and_again(net):
    """Nothing of the library has begun in it: no lock of a fork() is left in the child."""
    net.a.run(["sh", "-c", "(echo $( (true; echo $(true) ) | cat ) )"], preload=True)
    net.a.run(["/usr/bin/python3", "-c", "import os\nfor _ in range(5):\n if os.fork(): os.wait(); os._exit(0)"], preload=True)


def test_two_threads_of_a_child_use_what_it_has_inherited(net):
    """A socket is claimed from the parent once."""
    assert "all children have ended" in net.a.run([net.library.helpers / "claim_race", 5, net.a.ip4], preload=True, timeout=120).text
