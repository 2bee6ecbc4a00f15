# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What parameters do, each seen from outside. Those of TCP are in test_tcp_params.py, what is read of the environment in test_params.py."""

import json
import os
import re
import socket
import time

import pytest

from differential import App, differential
from netns import PYTHON, ROOT, wait_for
from test_tcp_both import HELPERS
from test_why import NO_RIGHTS, reasons, tool

READY = "s = udp(7000); await_ready(s, timeout=0.01)"
MINTTL = "s.setsockopt(socket.IPPROTO_IP, 21, 5)"  # only the kernel does it


def worker_cpus(app):
    """Of the thread that is not Python's: the internal one."""
    return {i: os.sched_getaffinity(int(i)) for i in os.listdir(f"/proc/{app.pid}/task") if int(i) != app.pid}


# --- those that have nothing to set here ---

def idle_parameters(which):
    """{variable: its least or its largest value} of what parameters.def says that there is nothing to set; which: 0 or 1."""
    text = (ROOT / "lib/config/parameters.def").read_text()
    rows = re.findall(r'^PARAM_(\w+)\(\w+, "(\w+)",((?:.(?!^PARAM))*?)NO_OBJECT', text, re.M | re.S)
    values = {}
    for kind, variable, rest in rows:
        if kind == "INT":
            least, largest = re.search(r"(-?\d+),\s*(INT_MAX|\d+),\s*SHOW", rest).groups()
            values[variable] = (least, largest.replace("INT_MAX", "2147483647"))[which]
        else:
            values[variable] = {"BOOL": ("0", "1"), "STR": ("", "/nowhere")}[kind][which]
    return values


@pytest.mark.parametrize("which", [0, 1], ids=["least", "largest"])
def test_what_has_nothing_to_set_sets_nothing(net, which):
    """With one buffer, one segment and no timer, or with two thousand million, all is done as ever."""
    net.neighbours()
    env = idle_parameters(which)
    print(env)
    assert len(env) > 15 and "VMA_TX_BUFS" in env and "VMA_SPEC_PARAM2" in env
    with App(net.b, False) as peer, App(net.a, True, env=env) as app:
        for x in (app, peer):
            x.do(HELPERS)
        peer.do("l = listener(7100); u = udp(7200)")
        with net.a.tcp_bypassed(), net.a.bypassed(at_most=1):
            app.do("s = client(7100); u = udp(7000); a = os.pipe()")
            app.start("write_all(s, 1 << 20, 1), s.shutdown(socket.SHUT_WR)")
            assert peer.do("read_all(l.accept()[0])", 60)[0] == app.answer(60)[0][0] == 1 << 20
            # A burst that nobody reads meanwhile; a pipe's byte is there when it has been written.
            app.do(f"[u.sendto(b'%d' % i, (PEER, 7200)) and None for i in range(200)]")
            assert peer.do("[u.recv(10) for i in range(200)] == [b'%d' % i for i in range(200)]") is True
            assert app.do("os.write(a[1], b'x'), select.select([a[0]], [], [], 0)[0] == [a[0]]") == (1, True)
        assert "WARNING" not in app.text, app.text


@pytest.mark.parametrize("allow", [0, 1])
def test_a_device_for_a_socket_of_who_has_no_right(unet, allow):
    """VMA_ALLOW_PRIVILEGED_SOCK_OPT has nothing to set: the kernel allows the first device, and refuses another one."""
    def steps(app, peer):
        app("s = udp(7000); await_ready(s, timeout=0.01)")
        app(NO_RIGHTS)
        app("t = udp(7002)")
        for device in (unet.a.dev, "lo", ""):
            app(f"t.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, {device.encode()!r})")
            app("t.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)")
        peer.sendto(b"by it", app.at(7002))
        app("t.recv(10)")
    answers = differential(unet, "4", steps, {"VMA_ALLOW_PRIVILEGED_SOCK_OPT": allow})
    assert ("OSError", "EPERM") in answers.values(), answers


# --- queues ---

@pytest.mark.parametrize("name, value, has", [("RX_WRE", 4096, 2048), ("TX_WRE", 8192, 2048), ("TX_WRE", 300, 256), ("RX_WRE", 512, None)])
def test_a_queue_that_is_not_as_long_as_it_was_set_is_said_once(unet, name, value, has):
    with App(unet.a, True, env={f"VMA_{name}": value}) as app:
        app.do(READY + "; t = udp(7001); await_ready(t, timeout=0.01)")
        lines = [line for line in app.text.splitlines() if f"VMA_{name}=" in line]
        print(*lines)
        assert len(lines) == (has is not None)
        assert not lines or f"VMA_{name}={value} is {has} on {unet.a.dev}: with AF_XDP" in lines[0]


def test_a_profile_s_queues_are_nobody_s_wish(unet):
    with App(unet.a, True, env={"VMA_SOCKETXTREME": 1}) as app:
        app.do(READY)
        assert "with AF_XDP" not in app.text


# --- a kernel that is not asked ---

@pytest.mark.parametrize("call", ["select.select([s, r], [], [], 0.5)[0]", "poller.poll(500)", "set.poll(0.5)"])
def test_a_ratio_of_0_leaves_the_kernel_alone_while_it_spins(unet, call):
    """
    The pipe, which only the kernel knows of, is written to before the time is over, and seen at its end. A call that begins only then
    sees it at once.
    """
    with App(unet.a, True, env={"VMA_SELECT_POLL": -1, "VMA_SELECT_POLL_OS_RATIO": 0}) as app:
        app.do(READY + "\nimport select, threading, time\nr, w = os.pipe(); poller = select.poll(); set = select.epoll()\n"
               "for fd in (s, r): poller.register(fd, select.POLLIN); set.register(fd, select.EPOLLIN)")

        def spent():
            app.do(f"threading.Timer(0.1, os.write, (w, b'x')).start()\nbegin = time.monotonic()\nfound = {call}\nspent = time.monotonic() - begin")
            app.do("os.read(r, 1)")
            print(f"{app.do('spent'):.3f} s")
            return app.do("spent") >= 0.5

        wait_for(spent, 20, "a call that has begun before the pipe is written to, and does not ask for it")


WAITS = {
    "poll": "(lambda p: (p.register(c, select.POLLIN), p.poll())[1])(select.poll())",
    "select": "select.select([c], [], [])[0]",
    "epoll": "(lambda p: (p.register(c, select.EPOLLIN), p.poll())[1])(select.epoll())",
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_connection_that_goes_to_the_kernel_is_seen_with_a_ratio_of_0(unet, wait):
    """A child of system() may have it, so it is the kernel's from then on; one thread spins on it without a limit all the time."""
    with App(unet.a, True, env={"VMA_SELECT_POLL": -1, "VMA_SELECT_POLL_OS_RATIO": 0}) as app:
        app.do("import select, threading; l = socket.socket(); l.bind((ME, 7000)); l.listen(); select.select([l], [], [], 0)")
        with unet.b.socket(kind=1, timeout=10) as s:
            s.connect(app.at(7000))
            s.sendall(b"a")
            app.do("c = l.accept()[0]; c.set_inheritable(True); c.recv(1)")
            shown = json.loads(unet.a.stats(app.popen, "--json", "-c", "1").splitlines()[-1])["sockets"]
            assert [q["offloaded"] for q in shown if q["state"] == "ESTABLISHED"] == [True], "it is offloaded before"
            app.do(f"""
found = []; what = []; begun = threading.Event()
def waits():
    begun.set()
    what.append({WAITS[wait]}); found.append(len(what[0]))
t = threading.Thread(target=waits, daemon=True)
t.start(); begun.wait(); os.system('true')
""")
            assert app.do("t.is_alive()"), app.do("repr(what)")
            s.sendall(b"b")
            app.do("t.join(10)")
            assert app.do("found") == [1]


# --- a full queue ---

DEVICE_STANDS_STILL = """
import ctypes, struct
# sendto(fd, NULL, 0), by which the kernel is made to send, fails with EAGAIN.
code = [(0x20, 0, 0, 0), (0x15, 0, 3, 44), (0x20, 0, 0, 32), (0x15, 0, 1, 0), (0x06, 0, 0, 0x50000 | 11), (0x06, 0, 0, 0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *c) for c in code))
fprog = struct.pack("HxxxxxxP", len(code), ctypes.addressof(program))
# Not by the library's own syscall(): it would leave (sandbox.c).
libc = ctypes.CDLL("libc.so.6")
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(317, 1, 0, fprog) == 0
"""
FLOOD = """
def flood():
    for i in range(6000):
        try: s.sendto(b"x", (PEER, 7200))
        except BlockingIOError: return i
    return None
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("eagains", [0, 1])
def test_a_full_queue_and_a_socket_that_does_not_wait(net, eagains):
    net.neighbours()
    with App(net.a, True, env={"VMA_TX_NONBLOCKED_EAGAINS": eagains}) as app:
        app.do("s = udp(7000); s.setblocking(False); s.sendto(b'x', (PEER, 7200))" + FLOOD)
        fd = app.do("s.fileno()")
        app.do(DEVICE_STANDS_STILL)
        refused = app.do("flood()", timeout=60)
        print(f"refused after {refused}; {reasons(app, fd)}")
        if eagains:
            assert refused and "ring-full" not in reasons(app, fd)[1]
        else:
            assert refused is None
            wait_for(lambda: "ring-full" in reasons(app, fd)[1], 10, lambda: reasons(app, fd))


WRITABLE = """
import select
e = select.epoll(); e.register(s, select.EPOLLOUT | select.EPOLLET)
p = select.poll(); p.register(s, select.POLLOUT)
"""
WAYS_TO_WAIT = {"epoll": "e.poll({seconds})", "poll": "p.poll({seconds} * 1000)", "select": "select.select([], [s], [], {seconds})[1]"}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("way", WAYS_TO_WAIT)
def test_a_full_queue_cannot_be_written_to(net, way):
    """As long as the device stands still, for all threads."""
    net.neighbours()
    with App(net.a, True, env={"VMA_TX_NONBLOCKED_EAGAINS": 1}) as app:
        app.do("s = udp(7000); s.setblocking(False); s.sendto(b'x', (PEER, 7200))" + FLOOD + WRITABLE)
        assert app.do(f"len({WAYS_TO_WAIT[way].format(seconds=5)})") == 1, "it can be written to before"
        app.do(DEVICE_STANDS_STILL.replace("syscall(317, 1, 0, fprog)", "syscall(317, 1, 1, fprog)"))
        assert app.do("flood()", timeout=60) is not None
        for _ in range(20):  # without a sleep: ppoll() on an XSK has the kernel send, too
            assert app.do(f"len({WAYS_TO_WAIT[way].format(seconds=0)})") == 0


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("way", WAYS_TO_WAIT)
@pytest.mark.parametrize("env", [{}, {"VMA_TX_WRE": 128}], ids=["buffers", "descriptors"])
def test_a_full_queue_that_has_room_again_is_told(net, env, way):
    """The sending thread alone cannot make the device work; the internal thread can. Nothing is lost, nothing overtakes."""
    net.neighbours()
    with App(net.a, True, env={"VMA_TX_NONBLOCKED_EAGAINS": 1, **env}) as app, net.b.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, 33, 1 << 23)  # SO_RCVBUFFORCE
        peer.bind((net.b.ip4, 7200))
        app.do("s = udp(7000); s.setblocking(False); s.sendto(b'0', (PEER, 7200))" + WRITABLE)
        app.do(f"len({WAYS_TO_WAIT[way].format(seconds=5)})")
        app.do("waits = 0\n" + DEVICE_STANDS_STILL)
        app.do(f"""
def send_all(n):
    global waits
    for i in range(1, n):
        while True:
            try: s.sendto(b'%d' % i, (PEER, 7200)); break
            except BlockingIOError:
                waits += 1
                assert {WAYS_TO_WAIT[way].format(seconds=10)}, "never told"
""")
        app.do("send_all(6000)", timeout=60)
        print(f"{app.do('waits')} times the queue was full")
        assert app.do("waits") > 0
        assert [int(peer.recv(10)) for _ in range(6000)] == list(range(6000))
        assert "ring-full" not in reasons(app, app.do("s.fileno()"))[1]


# sendmsg() with MSG_DONTWAIT; the library's questions to the kernel have no flag.
SEGMENTS_STAND_STILL = DEVICE_STANDS_STILL.replace("# sendto(fd, NULL, 0), by which the kernel is made to send,", "# It") \
    .replace("(0x15, 0, 3, 44)", "(0x15, 0, 3, 46)").replace("(0x15, 0, 1, 0)", "(0x15, 0, 1, 0x40)")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("eagains", [0, 1])
def test_a_full_queue_and_segments_of_a_socket_that_does_not_wait(net, eagains):
    net.neighbours()
    with App(net.a, True, env={"VMA_TX_NONBLOCKED_EAGAINS": eagains}) as app:
        app.do("s = udp(7000); s.setblocking(False); s.setsockopt(17, 103, 2)")
        fd = app.do("s.fileno()")

        def is_known():
            """Nothing goes by the kernel any more."""
            before = net.a.counters()["UdpOutDatagrams"]
            app.do("s.sendto(b'known', (PEER, 7200))")
            return net.a.counters()["UdpOutDatagrams"] == before

        wait_for(is_known, 10, "a way past the kernel")
        app.do(SEGMENTS_STAND_STILL)

        def answer():
            return app.ask("s.sendto(b'parts', (PEER, 7200))")

        # News of the neighbour may come between: then the kernel sends what comes before.
        if eagains:
            wait_for(lambda: answer() == ("OSError", "EAGAIN"), 10, "EAGAIN")
            assert "ring-full" not in reasons(app, fd)[1]
        else:
            wait_for(lambda: answer() != 5 or "ring-full" in reasons(app, fd)[1], 10, "ring-full")
            assert answer() == 5


# --- options that only the kernel does ---

MADE = {"udp": READY, "tcp": "s = socket.socket()", "listener": "s = socket.create_server((ME, 7000)); await_ready(s, timeout=0.01)"}


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("mode", [-2, -1, 0, 1, 2])
def test_an_option_that_only_the_kernel_can_do(net, kind, mode):
    with App(net.a, True, env={"VMA_EXCEPTION_HANDLING": mode}) as app:
        app.do(MADE[kind])
        fd = app.do("s.fileno()")
        answer = app.ask(MINTTL)
        assert (answer == ("OSError", "EINVAL")) is (mode == 2), answer
        assert app.do("s.getsockopt(socket.IPPROTO_IP, 21)") == (0 if mode == 2 else 5)
        said = f"VMA ERROR: fd {fd}: option 21 of level 0 is not done here (VMA_EXCEPTION_HANDLING={mode})\n"
        assert (said in app.text) is (mode > 0), app.text
        if mode == 2:
            assert "option" not in reasons(app, fd)[1]
        else:
            wait_for(lambda: "option" in reasons(app, fd)[1], 10, lambda: reasons(app, fd))


def test_an_option_of_a_connection_that_only_the_kernel_can_do(net):
    with App(net.a, True, env={"VMA_EXCEPTION_HANDLING": 2}) as app, net.b.socket(kind=1) as listener:
        listener.bind((net.b.ip4, 7300))
        listener.listen()
        app.do("s = socket.create_connection((PEER, 7300))")
        fd = app.do("s.fileno()")
        assert app.ask(MINTTL) == ("OSError", "EINVAL")
        assert reasons(app, fd)[1] == [] and "option 21 of level 0 is not done here" in app.text
        app.do("s.send(b'x')")
        assert listener.accept()[0].recv(1) == b"x"


def ended(net, code, mode):
    process = net.a.popen([PYTHON, "-c", code], True, {"VMA_EXCEPTION_HANDLING": mode})
    return process, process.wait(30)


def test_an_option_that_only_the_kernel_can_do_may_end_the_process(net):
    code = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.setsockopt(0, 21, 5); print('goes on')"
    done, status = ended(net, code, "3")
    assert status == -6 and "\ngoes on\n" not in done.text and "option 21 of level 0 is not done here" in done.text


@pytest.mark.parametrize("mode, ends", [("-2", True), ("-1", False)])
def test_a_process_in_which_the_library_cannot_start(net, mode, ends):
    """No thread can be made. The system call itself: the library knows of libc's setresuid(), and prepares for it."""
    code = ("import ctypes, os, resource, socket; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
            "ctypes.CDLL(None).syscall(117, 65533, 65533, 65533)\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print('goes on')")
    done, status = ended(net, code, mode)
    print(done.text)
    assert "nothing is offloaded in this process: start-up failed" in done.text
    assert (status, "\ngoes on\n" in done.text) == ((1, False) if ends else (0, True))


# --- groups ---

@pytest.mark.parametrize("loop", [0, 1])
def test_what_goes_to_a_group_waits_after_joining(unet, loop):
    join = "s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.7.7.7') + socket.inet_aton(ME))"
    with App(unet.a, True, env={"VMA_WAIT_AFTER_JOIN_MSEC": 300}) as app:
        app.do(READY + f"; s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, {loop})\nimport time")
        app.do("s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ME)); s.sendto(b'x', ('239.7.7.7', 7200))")
        for _ in range(2):  # the way to the group is known the second time
            app.do(f"begin = time.monotonic()\n{join}\ns.sendto(b'x', ('239.7.7.7', 7200))\nspent = time.monotonic() - begin")
            print(spent := app.do("spent"))
            assert spent >= 0.3
            app.do(join.replace("ADD", "DROP"))


def test_a_new_socket_does_not_wait_for_what_a_former_one_has_joined(unet):
    """It would be an hour."""
    to_group = "s.setsockopt(0, socket.IP_MULTICAST_IF, socket.inet_aton(ME)); s.sendto(b'x', ('239.7.7.7', 7200))"
    with App(unet.a, True, env={"VMA_WAIT_AFTER_JOIN_MSEC": 3600000}) as app:
        app.do(READY + "; s.setsockopt(0, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.7.7.7') + socket.inet_aton(ME)); s.close()")
        app.do(f"s = udp(7000); {to_group}")


# --- the internal thread ---

@pytest.mark.parametrize("arm, taken", [(1, True), (0, False)])
def test_the_internal_thread_is_woken_by_each_packet(net, arm, taken):
    """It drains nothing by time, and the program sleeps."""
    net.neighbours()
    with App(net.a, True, env={"VMA_INTERNAL_THREAD_ARM_CQ": arm, "VMA_PROGRESS_ENGINE_INTERVAL": 0}) as app, net.b.socket() as peer:
        app.do(READY)
        before = received(app)
        for i in range(1, 4):
            peer.sendto(b"x", (net.a.ip4, 7000))
            if taken:
                wait_for(lambda: received(app) == before + i, 10, f"packet {i}")
        if not taken:
            # What the peer sent has come: the kernel has given it to the ring.
            time.sleep(0.5)
            assert received(app) == before
            app.do("await_ready(s)")


def received(app):
    """Packets that its rings have taken in, by vma_stats."""
    return sum(r["rx_packets"] for r in json.loads(tool(app, "--json", "-c", "1").splitlines()[-1])["rings"])


@pytest.mark.parametrize("arm", [1, 0])
def test_the_internal_thread_is_woken_also_while_a_thread_polls(net, arm):
    """The thread spins until each datagram is there: nobody but the internal thread sleeps on the ring."""
    net.neighbours()
    with App(net.a, True, env={"VMA_INTERNAL_THREAD_ARM_CQ": arm, "VMA_RX_POLL": -1}) as app, net.b.socket() as peer:
        app.do(READY + "; s.settimeout(None)")

        def woken():
            return sum(r["interrupts_received"] for r in json.loads(tool(app, "--json", "-c", "1").splitlines()[-1])["rings"])
        before = woken()

        def come():
            app.start("len([s.recv(10) for _ in range(100)])")
            for _ in range(100):
                peer.sendto(b"x", (net.a.ip4, 7000))
                time.sleep(0.003)
            assert app.answer() == 100
            return woken() - before
        # On a busy machine it is woken for several at once.
        times = wait_for(lambda: (n := come()) >= 10 and n, 30, "it is woken") if arm else come()
        print(f"{times} times")
        assert times >= 10 if arm else times < 50


@pytest.mark.parametrize("most", [1, 10000])
def test_how_much_the_internal_thread_takes_at_a_time(net, most):
    """vma_stats shows the most that it ever took. The program does not look, and the interval leaves time for many to come."""
    net.neighbours()
    env = {"VMA_PROGRESS_ENGINE_WCE_MAX": most, "VMA_PROGRESS_ENGINE_INTERVAL": 50, "VMA_TIMER_RESOLUTION_MSEC": 50}
    with App(net.a, True, env=env) as app, net.b.socket() as peer:
        app.do(READY)

        def taken():
            """After ten more have been."""
            before = received(app)
            for _ in range(10):
                peer.sendto(b"x", (net.a.ip4, 7000))
            wait_for(lambda: received(app) >= before + 10, 20, "they are taken in")
            return max(q["drained_max"] for q in json.loads(tool(app, "--json", "-c", "1").splitlines()[-1])["cqs"])
        if most == 1:
            wait_for(taken, 20, "it has taken one")
            assert [taken() for _ in range(3)] == [1] * 3
        else:
            print(wait_for(lambda: (n := taken()) > 1 and n, 20, "several at a time"))


@pytest.mark.parametrize("form", ["mask", "list"])
def test_the_internal_thread_runs_where_it_is_told(unet, form):
    """And the program's thread where it did."""
    mine = os.sched_getaffinity(0)
    cpu = min(mine)
    with App(unet.a, True, env={"VMA_INTERNAL_THREAD_AFFINITY": hex(1 << cpu) if form == "mask" else cpu}) as app:
        app.do(READY)

        def allowed():
            """{name of the thread: Cpus_allowed_list}"""
            texts = [open(f"/proc/{app.pid}/task/{i}/status").read() for i in os.listdir(f"/proc/{app.pid}/task")]
            return {t.split("Name:\t")[1].split("\n")[0]: t.split("Cpus_allowed_list:\t")[1].split("\n")[0] for t in texts}
        wait_for(lambda: allowed().get("vma-worker") == str(cpu), 10, allowed)
        print(allowed())
        assert len(mine) == 1 or os.sched_getaffinity(app.pid) == mine


@pytest.mark.parametrize("file", ["tasks", "cgroup.threads"])
def test_the_internal_thread_enters_a_cpuset(unet, tmp_path, file):
    (tmp_path / file).write_text("")
    with App(unet.a, True, env={"VMA_INTERNAL_THREAD_CPUSET": tmp_path}) as app:
        app.do(READY)
        thread = wait_for((tmp_path / file).read_text, 10, "its number").strip()
        assert int(thread) in map(int, worker_cpus(app)) and int(thread) != app.pid
        assert "CPUSET" not in app.text
    assert os.listdir(tmp_path) == [file]


def test_a_cpuset_that_cannot_be_entered_gives_its_processors(unet, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    (tmp_path / "cpuset.cpus.effective").write_text(f"{cpu}\n")
    with App(unet.a, True, env={"VMA_INTERNAL_THREAD_CPUSET": tmp_path}) as app:
        app.do(READY)
        wait_for(lambda: {cpu} in worker_cpus(app).values(), 10, lambda: worker_cpus(app))
        assert "CPUSET" not in app.text


def test_what_is_no_cpuset_is_said(unet, tmp_path):
    with App(unet.a, True, env={"VMA_INTERNAL_THREAD_CPUSET": tmp_path}) as app:
        app.do(READY)
        assert f"VMA_INTERNAL_THREAD_CPUSET={tmp_path}: the internal thread cannot enter: No such file or directory; it keeps its CPUs" in app.text
