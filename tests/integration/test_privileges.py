# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs that give their privileges away between bind() and their first wait: what they need by then is open."""

import contextlib
import os
import shutil
import signal
import socket
import tempfile

import pytest

from differential import App
from netns import ip, wait_for
from test_tcp_both import HELPERS, PORT

LEAVE = {
    "setuid": "os.setuid(65534)",
    "seteuid": "os.seteuid(65534)",
    "setreuid": "os.setreuid(65534, 65534)",
    "setresuid": "os.setresuid(65534, 65534, 65534)",
    "raw": "call('syscall', 117, 65534, 65534, 65534)",  # setresuid, of this thread
    "capset": "call('capset', struct.pack('Ii', 0x20080522, 0), bytes(24))",
    "chroot": "os.mkdir(D); os.chroot(D); os.setuid(65534)",
}


def xdp(host):
    """True when an XDP program sits on the interface."""
    return "xdp" in ip("-n", host.name, "link", "show", host.dev)


@contextlib.contextmanager
def app_of(net, family="4", host=None, env=None):
    with App(host or net.a, True, family, env) as app:
        app.do(HELPERS)
        app.do(f"D = '{net.tmp}/root{app.popen.pid}'")
        yield app


def capable(app):
    return int(app.do("[l.split()[1] for l in open('/proc/thread-self/status') if l.startswith('CapEff')][0]"), 16)


def echo(net, app, family="4"):
    """A connection from net.b: served by the application, and not by the kernel of net.a."""
    fam = socket.AF_INET if family == "4" else socket.AF_INET6
    with net.a.tcp_bypassed(), net.b.socket(fam, socket.SOCK_STREAM) as c:
        app.start("s, _ = l.accept()")
        c.connect((net.a.ip(4 if family == "4" else 6), PORT))
        app.answer()
        c.sendall(b"question")
        assert app.do("s.recv(100)") == b"question"
        app.do("s.sendall(b'answer')")
        assert c.recv(100) == b"answer"


@pytest.mark.parametrize("family", ["4", "6", "mapped"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "setuid"])
def test_the_first_connection_of_a_process_is_ours(net, family, leaves):
    """connect() is its very first call on a socket: no packet of it is the kernel's, and none afterwards."""
    with app_of(net, family) as app, net.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET, socket.SOCK_STREAM) as peer:
        peer.bind((net.b.ip(6 if family == "6" else 4), PORT))
        peer.listen()
        assert not xdp(net.a)
        with net.a.tcp_bypassed():
            app.do("s = client()")
            c, _ = peer.accept()
            with c:
                if leaves:
                    app.do("os.setuid(65534)")
                    assert capable(app) == 0
                app.do("s.sendall(b'question')")
                assert c.recv(100) == b"question"
                c.sendall(b"answer")
                assert app.do("s.recv(100)") == b"answer"


@pytest.mark.parametrize("family", ["4", "6"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "setuid"])
def test_the_first_connection_of_a_server_is_ours(net, family, leaves):
    with app_of(net, family) as app:
        app.do("l = listener()")
        if leaves:
            app.do("os.setuid(65534)")
        app.do("ready(l)")
        echo(net, app, family)


@pytest.mark.parametrize("how", LEAVE)
def test_a_listener_is_served_afterwards(net, how):
    with app_of(net) as app:
        app.do("l = listener()")
        assert not xdp(net.a)
        app.do(LEAVE[how])
        if how != "chroot":
            assert capable(app) == 0
        assert xdp(net.a)
        app.do("ready(l)")
        echo(net, app)


@pytest.mark.parametrize("ends", [False, True], ids=["open", "FIN"])
def test_a_connection_goes_to_the_kernel_while_no_capability_is_effective(net, ends):
    """TCP_REPAIR needs one, and the peer's FIN, which is sent again, another: seteuid() leaves both permitted."""
    with app_of(net) as app, net.b.socket(kind=socket.SOCK_STREAM) as c:
        app.do("l = listener(); select.select([l], [], [], 0)")
        app.start("s, _ = l.accept(); s.recv(100)")
        with net.a.tcp_bypassed():
            c.connect((net.a.ip4, PORT))
            c.sendall(b"ours")
            app.answer()
            if ends:
                c.sendall(b"passed on")
                c.shutdown(socket.SHUT_WR)
                app.do("p = select.poll(); p.register(s, select.POLLRDHUP); assert p.poll(10000)")
        app.do("os.seteuid(65534)")
        assert capable(app) == 0
        app.do("a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [s.fileno()])")
        app.do("t = socket.socket(fileno=socket.recv_fds(b, 1, 1)[1][0])")
        if not ends:
            c.sendall(b"passed on")
        assert app.do("t.recv(100)") == b"passed on"
        if ends:
            assert app.do("t.recv(100)") == b""
        assert capable(app) == 0, "it has been given back"


def test_what_it_leaves_to_the_kernel_keeps_its_mark_while_no_capability_is_effective(net):
    """The peer reads nothing, so the connection outlives the process: its segments take the way that SO_MARK says."""
    with net.b.socket(kind=socket.SOCK_STREAM) as c:
        with app_of(net) as app:
            app.do("l = listener(); l.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, 7); select.select([l], [], [], 0)")
            app.start("s, _ = l.accept(); s.setblocking(False)")
            c.connect((net.a.ip4, PORT))
            app.answer()
            app.do("while select.select([], [s], [], 0.2)[1]: s.send(bytes(100000))")
            app.do("os.seteuid(65534); s.close()")
        text = net.a.run(["ss", "-tanoe", "state", "fin-wait-1"]).text
        assert f"{net.a.ip4}:{PORT}" in text and "fwmark:0x7" in text, text


def test_a_socket_that_is_only_bound_is_served_afterwards(net):
    with app_of(net) as app:
        app.do(f"l = socket.socket(); l.bind((ANY, {PORT})); os.setuid(65534); l.listen(5); ready(l)")
        assert capable(app) == 0
        echo(net, app)


def test_a_client_of_such_a_process_is_served(net):
    with app_of(net) as app, net.b.socket(kind=socket.SOCK_STREAM) as peer:
        peer.bind((net.b.ip4, PORT + 1))
        peer.listen()
        app.do("l = listener(); os.setuid(65534)")
        with net.a.tcp_bypassed():
            app.do(f"c = client({PORT + 1}); c.sendall(b'x')")
            s, _ = peer.accept()
            assert s.recv(10) == b"x"
            s.close()


@pytest.mark.parametrize("family", ["4", "6"])
def test_a_neighbour_that_has_to_be_asked_for(net, family):
    """Netlink refuses such a process: the kernel is made to ask by a datagram to the neighbour."""
    mac = ip("-n", net.a.name, "-br", "link", "show", net.a.dev).split()[2]
    address = net.a.ip(4 if family == "4" else 6)
    # The peer knows us for good and asks nothing, so the kernel learns nothing from it.
    ip("-n", net.b.name, "neigh", "replace", address, "lladdr", mac, "dev", net.b.dev, "nud", "permanent")
    with app_of(net, family) as app:
        app.do("l = listener(); os.setuid(65534); ready(l)")
        ip("-n", net.a.name, "neigh", "flush", "dev", net.a.dev)
        echo(net, app, family)


def test_who_has_no_such_socket_opens_nothing(net):
    for setup in ("None", "l = socket.socket()", "l = socket.socket(socket.AF_UNIX)"):
        with app_of(net) as app:
            app.do(setup)
            app.do("os.setuid(65534)")
            assert not xdp(net.a), setup


@pytest.mark.parametrize("rule", ["use os tcp_server *:*", None])
def test_what_the_rules_leave_to_the_kernel_opens_nothing(net, rule):
    conf = net.tmp / "rules.conf"
    conf.write_text(f"application-id * *\n{rule or 'use vma tcp_server *:*'}\n")
    with app_of(net, env={"VMA_CONFIG_FILE": conf}) as app:
        app.do("l = listener(); os.setuid(65534)")
        assert xdp(net.a) == (rule is None)


def test_a_child_of_a_server_that_waits_itself_opens_nothing(net):
    with app_of(net) as app:
        app.do("l = listener(); ready(l)")
        app.do("""def child():
            pid = os.fork()
            if not pid:
                try:
                    os.setuid(65534)
                    os._exit(len(os.listdir('/proc/self/task')))
                except BaseException: os._exit(99)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])""")
        assert app.do("child()") == 1  # one thread: the library has not been started
        echo(net, app)


def test_the_next_process_takes_the_interface_over(net):
    with app_of(net) as app:
        app.do("l = listener(); os.setuid(65534); ready(l)")
        echo(net, app)
    assert xdp(net.a)  # nobody was left who might detach it
    with net.a.socket(kind=socket.SOCK_STREAM) as server, net.b.socket(kind=socket.SOCK_STREAM) as c:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((net.a.ip4, PORT))
        server.listen()
        c.connect((net.a.ip4, PORT))  # what comes is the kernel's again
        server.accept()[0].close()
    with app_of(net) as app:
        app.do("l = listener(); ready(l)")
        echo(net, app)
    assert not xdp(net.a)


def test_the_statistics_file_goes_with_its_process(net, open_directory):
    directory = open_directory
    with app_of(net, env={"VMA_STATS_SHMEM_DIR": directory}) as app:
        app.do("l = listener(); os.setuid(65534); ready(l)")
        pid = app.do("os.getpid()")
        file = directory / f"vmastat.{pid}"
        assert file.stat().st_uid == 65534
    wait_for(lambda: not file.exists(), what="the file removed")


# A process that has sockets gives CAP_SETGID away, and then tries what that is for.
REFUSED = """
import ctypes, os, socket, struct
s = socket.socket()
libc = ctypes.CDLL(None, use_errno=True)
header, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
capset = libc.capset if how == "libc" else lambda h, d: libc.syscall(126, h, d)
def refused(fn, *args):
    try:
        fn(*args)
        return "done"
    except PermissionError:
        return "refused"
assert libc.capget(header, data) == 0
words = list(struct.unpack("6I", data.raw))
words[0] &= ~(1 << 6)
words[1] &= ~keep
print(capset(header, struct.pack("6I", *words)), refused(os.setgroups, [1, 2]), refused(os.setgid, 12), refused(os.setuid, os.getuid()))
words[0] |= 1 << 6
print(capset(header, struct.pack("6I", *words)), refused(os.setgroups, [1, 2]), os.getgroups())
"""


@pytest.mark.parametrize("how", ["libc", "syscall"])
@pytest.mark.parametrize("keep", ["0", "1 << 6"], ids=["for-now", "for-good"])
def test_a_capability_is_given_away_in_every_thread(net, keep, how):
    """libc changes users and groups in each thread, and aborts when the answers differ (squid)."""
    said = []
    for preload in (False, True):
        run = net.a.popen(["/usr/bin/python3", "-c", f"keep, how = {keep}, '{how}'" + REFUSED], preload=preload, env={"VMA_TRACELEVEL": "ERROR"})
        said.append((run.wait(), run.text))
    assert said[0] == said[1], said
    assert "refused" in said[0][1], said
    print(said[1][1])


# It keeps capabilities when it becomes another user, and then does what they are for. Last: what other threads may besides the
# library's work (CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF).
KEPT = """
import ctypes, os, pathlib, socket, struct
s = socket.socket()
libc = ctypes.CDLL(None, use_errno=True)
prctl = libc.prctl if how == "libc" else lambda *x: libc.syscall(157, *x)
def capset(word):
    assert libc.capset(struct.pack("Ii", 0x20080522, 0), struct.pack("6I", word, word, 0, 0, 0, 0)) == 0
assert prctl(*option, 0, 0, 0) == 0
os.setresuid(65534, 65534, 65534)
capset(1 << 6 | 1 << 7)
os.setgroups([1, 2])
os.setgid(12)
os.setuid(7)
capset(0)
own = 1 << 12 | 1 << 13 | 1 << 14 | 1 << 21 | 1 << 38 | 1 << 39
may = [int(line.split()[1], 16) & ~own for task in pathlib.Path("/proc/self/task").iterdir()
       for line in (task / "status").read_text().splitlines() if line.startswith("CapPrm")]
print(os.getresuid(), os.getresgid(), os.getgroups(), any(may))
"""


@pytest.mark.parametrize("how", ["libc", "syscall"])
@pytest.mark.parametrize("option", ["8, 1", "28, 1 << 2"], ids=["PR_SET_KEEPCAPS", "PR_SET_SECUREBITS"])
def test_capabilities_are_kept_in_every_thread(net, option, how):
    """Else libc aborts when the internal thread is refused what the program may."""
    said = []
    for preload in (False, True):
        run = net.a.popen(["/usr/bin/python3", "-c", f"option, how = ({option}), '{how}'" + KEPT], preload=preload, env={"VMA_TRACELEVEL": "ERROR"})
        said.append((run.wait(), run.text))
    print(said)
    assert said[0] == said[1] == (0, "(7, 7, 7) (12, 12, 12) [1, 2] False\n"), said


# In a mount namespace of its own; what a user may set is set.
SET_UID = """
mount --bind $1/etc /etc && echo $2 >/etc/ld.so.preload
cp $(readlink -f /usr/bin/python3) $1/python
setting="VMA_TRACELEVEL=DEBUG VMA_LOG_FILE=$1/log VMA_STATS_FILE=$1/stats VMA_MTU=x"
user="setpriv --reuid 65534 --regid 65534 --clear-groups env $setting"
open="import os, socket; s = socket.socket(); print(os.geteuid()); s.close()"
env $setting $1/python -c "$open"
ls $1/log && rm $1/log $1/stats
chmod 4755 $1/python
$user $1/python -c "$open"
ls $1/log $1/stats
"""


@pytest.mark.no_sanitize  # its runtime would have to come first
def test_a_set_uid_program_does_not_obey_who_starts_it(net, library):
    """With the library in /etc/ld.so.preload: another user must not choose what a program of root's writes, and where."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        shutil.copytree("/etc", f"{directory}/etc", symlinks=True)
        text = net.a.run(["unshare", "-m", "bash", "-c", SET_UID, "bash", directory, library.path], check=False).text
    print(text)
    lines = [line.replace(directory, "DIR") for line in text.splitlines()]
    assert lines[:2] == ["0", "DIR/log"], text  # of root's own it is obeyed
    assert lines[2] == "0" and sum("No such file" in line for line in lines[3:]) == 2, text


# A daemon that takes a port below 1024 as root, becomes another user, and goes on with it. What it may is the kernel's matter.
LOW_PORT = """
import ctypes, errno, os, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def tell(what, call):
    try: call(); print(what, "done")
    except OSError as e: print(what, errno.errorcode[e.errno])
def unconnect(s):
    if libc.connect(s.fileno(), struct.pack("H14x", 0), 16):
        e = ctypes.get_errno(); raise OSError(e, os.strerror(e))
def serve():
    c, _ = l.accept()
    c.sendall(c.recv(100))
    return c
l = socket.socket(); l.setsockopt(1, 2, 1); l.bind(("0.0.0.0", port)); l.listen(5)
r = socket.socket(); r.setsockopt(1, 2, 1); r.bind(("0.0.0.0", port + 900))
print("ready")
first = serve()
os.setresuid(65534, 65534, 65534)
def another():
    with socket.socket() as s: s.bind(("0.0.0.0", port))
tell("another", another)
tell("listen", lambda: l.listen(7))
tell("shutdown", lambda: l.shutdown(socket.SHUT_RDWR))
tell("listen anew", lambda: l.listen(7))
print("ready"); serve().close()
tell("unconnect", lambda: unconnect(l))
tell("listen again", lambda: l.listen(7))
print("ready"); serve().close()
tell("reserved port refused", lambda: r.connect((peer, 7999)))
print(r.getsockname()[1] - port)
tell("reserved port", lambda: r.connect((peer, 7998)))
print(r.getsockname()[1] - port); print(r.recv(100))
tell("unconnect", lambda: unconnect(r))
print(r.getsockname()[1] - port)
tell("reserved port again", lambda: r.connect((peer, 7997)))
print(r.getsockname()[1] - port); print(r.recv(100))
l.close()
print("closed")
"""


HELLO = """
import signal, socket, sys
listeners = [socket.create_server((sys.argv[1], port)) for port in (7998, 7997)]
print("ready")
clients = []
for l in listeners:
    clients.append(l.accept()[0])
    clients[-1].sendall(b"hello")
signal.pause()
"""


def low_port(net, port, preload):
    """What it says, and which clients the kernel has served."""
    hello = net.b.python(HELLO, args=(net.b.ip4,))
    hello.wait_text("^ready")
    log = net.tmp / f"log{port}"  # what it prints is compared
    app = net.a.python(f"peer, port = '{net.b.ip4}', {port}" + LOW_PORT, preload=preload, env={"VMA_TRACELEVEL": "DEBUG", "VMA_LOG_FILE": log})
    echoes = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: preload and print(log.read_text()))
        for nth in range(1, 4):
            app.wait_text("(?s)(ready.*){%d}" % nth)
            if preload:
                net.a.wait_steered(port, "tcp")
            c = stack.enter_context(net.b.socket(kind=socket.SOCK_STREAM))
            c.settimeout(20)
            if preload:
                stack.enter_context(net.a.tcp_bypassed())
            c.connect((net.a.ip4, port))
            c.sendall(b"echo")
            echoes.append(c.recv(100))
        app.wait_text("^closed")
    ended = app.wait()
    hello.kill(signal.SIGKILL)
    hello.wait()
    return echoes, ended, app.text


def kernel_is_done(host):
    """Nothing of the kernel's connections will be sent any more but what TIME_WAIT answers."""
    return not host.run(["ss", "-Htan", "state", "connected", "exclude", "time-wait"]).text.strip()


def test_a_low_port_without_its_capability(net):
    plain = low_port(net, 80, False)
    wait_for(lambda: kernel_is_done(net.a) and kernel_is_done(net.b), 20, "the end of the kernel's connections")
    ours = low_port(net, 81, True)
    print(*plain, sep="\n")
    assert plain == ours
