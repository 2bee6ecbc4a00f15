# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What vma_stats counts of a program that runs: its waits, its rings' queues and buffers, its groups, and what was dropped."""

import json
import re
import subprocess

import pytest

from differential import App
from netns import PATIENCE, stopped, wait_for
from test_tcp_both import HELPERS


def tool(app, *args):
    net = app.host.net
    return subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(app.pid), "-c", "1", *args],
                          capture_output=True, text=True, timeout=20 * PATIENCE, check=True).stdout


def figures(app):
    return json.loads(tool(app, "--json").splitlines()[-1])


def seen(app, ready, what):
    """The figures as soon as ready(figures): the library brings some there each 100 ms."""
    def look():
        now = figures(app)
        return now if ready(now) else None
    return wait_for(look, 20, what, 0.05)


def the_socket(app, f):
    return next(s for s in f["sockets"] if s["fd"] == app.do("u.fileno()"))


# --- select(), poll(), epoll_wait()

WAYS = {"select": "sum(map(len, select.select([u, a], [], [], ms / 1000)))", "poll": "len(p.poll(ms))", "epoll": "len(e.poll(ms / 1000))"}
# The handler's exception is the call's end: Python would begin it anew.
SETS = """
import signal
a, b = os.pipe()
p, e = select.poll(), select.epoll()
for x in (u, a): p.register(x, select.POLLIN); e.register(x, select.EPOLLIN)
def alarm(*_): raise InterruptedError(errno.EINTR, '')
signal.signal(signal.SIGALRM, alarm)
def interrupted():
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        wait(60000)
    except InterruptedError: return True
"""


@pytest.mark.parametrize("way", WAYS)
def test_each_wait_is_counted_by_how_it_ends(net, way):
    net.neighbours()
    with App(net.a, True) as app, net.b.socket() as peer:
        app.do("u = udp(7000); ready(u)")
        app.do(SETS + f"def wait(ms): return {WAYS[way]}")
        app.do("wait(0)")

        def counters():
            f = figures(app)
            m = f[way] if way != "epoll" else next(m for m in f["epoll"] if m["epfd"] == app.do("e.fileno()"))
            return {n: m[n] for n in ("ready_os", "ready_offloaded", "poll_hit", "poll_miss", "timeouts", "errors")}

        def more(code, answer):
            """What the step has added."""
            before = counters()
            assert app.do(code) == answer
            now = counters()
            return {n: now[n] - before[n] for n in now if now[n] != before[n]}

        peer.sendto(b"x", (net.a.ip4, 7000))
        seen(app, lambda f: the_socket(app, f)["rx_ready_packets"] == 1, "the datagram waits")
        assert more("wait(60000)", 1) == {"ready_offloaded": 1, "poll_hit": 1}
        app.do("u.recv(10)")
        assert more("wait(10)", 0) == {"timeouts": 1, "poll_miss": 1}
        assert more("wait(0)", 0) == {"timeouts": 1}
        app.do("os.write(b, b'x')")
        assert more("wait(60000)", 1) == {"ready_os": 1, "poll_hit": 1}
        app.do("os.read(a, 1)")
        # The signal may come before the call.
        added = wait_for(lambda: more("interrupted()", True), 20, "a call that is interrupted")
        assert added in ({"errors": 1, "poll_miss": 1}, {"errors": 1, "poll_hit": 1}), added
        print(f"{way}: {counters()}")


# --- queues and buffers

def queue(f):
    """
    Of a program with one ring: what waits in its queue, what buffers are free. None: it was just telling of them, and the figures of the
    ring, the queue and the pool, which are the same, differ.
    """
    (cq,), pool = f["cqs"], {p["is_rx"]: p for p in f["pools"]}
    same = 1 in pool and pool[1]["size"] == cq["pool_len"] and pool[1]["no_buffers"] == cq["drops"] == f["rings"][0]["rx_drop_no_buf"]
    return (cq["queue_len"], cq["pool_len"]) if same else None


def test_queue_and_pool_follow_the_datagrams(net):
    """On their way they are in the queue, then in the socket with buffers of the pool, which are back when all is read."""
    net.neighbours()
    with App(net.a, True, env={"VMA_PROGRESS_ENGINE_INTERVAL": 0}) as app, net.b.socket() as peer:
        app.do("u = udp(7000); ready(u)")
        free = queue(seen(app, lambda f: queue(f) and queue(f)[0] == 0, "an empty queue"))[1]
        for _ in range(10):
            peer.sendto(b"x", (net.a.ip4, 7000))
        seen(app, lambda f: queue(f) == (10, free), "10 datagrams in the queue")
        app.do("ready(u)")
        seen(app, lambda f: queue(f) == (0, free - 10), "10 buffers are the socket's")
        app.do("[u.recv(10) for _ in range(10)]")
        seen(app, lambda f: queue(f) == (0, free), "the buffers are back")
        text = tool(app, "-v", "3")
        assert f"Packets queue len:   0\nDrained max:         0\nBuffer pool size:    {free}\n" in text, text


def test_what_is_drained_and_what_finds_no_buffer_is_counted(net):
    """The program holds all the buffers that there are: what comes then is dropped, and each drop is counted."""
    net.neighbours()
    with App(net.a, True, env={"VMA_RX_BUFS": 100}) as app, net.b.socket() as peer:
        app.do("u = udp(7000); u.setsockopt(socket.SOL_SOCKET, 33, 1 << 26); ready(u)")  # SO_RCVBUFFORCE
        sent = 0

        def more():
            nonlocal sent
            for _ in range(100):
                peer.sendto(b"x", (net.a.ip4, 7000))
            sent += 100
            f = seen(app, lambda f: the_socket(app, f)["rx_ready_packets"] + f["cqs"][0]["drops"] == sent and queue(f),
                     "each one is held or dropped")
            return f["cqs"][0]["drops"] and f
        f = wait_for(more, 60, "a drop")
        assert f["cqs"][0]["drained_max"] >= 1, "the progress engine has fetched them: the program makes no call"
        text = tool(app, "-v", "3")
        dropped = f["cqs"][0]["drops"]
        assert re.search(rf"^Packets dropped: +{dropped} *$", text, re.M) and re.search(rf"^No buffers error: +{dropped} *$", text, re.M), text
        print(f"{sent} datagrams, {dropped} dropped, at most {f['cqs'][0]['drained_max']} at a time drained")


def test_what_the_kernel_has_no_buffer_for_is_counted(net):
    """The program is stopped, and more datagrams come than its ring has buffers."""
    net.neighbours()
    with App(net.a, True) as app, net.b.socket() as peer:
        app.do("u = udp(7000); u.setsockopt(socket.SOL_SOCKET, 33, 1 << 26); ready(u)")  # SO_RCVBUFFORCE
        with stopped(app.pid):
            for _ in range(3000):
                peer.sendto(b"x", (net.a.ip4, 7000))
        f = seen(app, lambda f: the_socket(app, f)["rx_ready_packets"] + f["cqs"][0]["drops"] == 3000 and queue(f), "each one is held or dropped")
        assert f["cqs"][0]["drops"] >= 3000 - 2048
        print(f"{f['cqs'][0]['drops']} of 3000 datagrams dropped")


def test_interrupts_of_an_xdp_ring_are_counted(net):
    """One is asked for by whoever goes to sleep, and has come when something does."""
    net.neighbours()
    with App(net.a, True, env={"VMA_RX_POLL": 0}) as app, net.b.socket() as peer:
        app.do("u = udp(7000); ready(u)")
        for _ in range(3):
            before = figures(app)["rings"][0]
            app.start("u.recv(10)")
            asked = seen(app, lambda f: f["rings"][0]["interrupts_requested"] > before["interrupts_requested"], "it asks")["rings"][0]
            peer.sendto(b"x", (net.a.ip4, 7000))
            assert app.answer() == b"x"
            seen(app, lambda f: f["rings"][0]["interrupts_received"] > asked["interrupts_received"], "it has come")
        line = re.search(r"^Interrupts: +(\d+) / (\d+) \[requests/received\] *$", tool(app, "-v", "3"), re.M)
        assert int(line[1]) >= int(line[2]) >= 3, line
        print(line[0])


# --- sockets

def test_the_groups_of_a_program_that_joins_and_leaves(net):
    with App(net.a, True) as app:
        app.do("u, v = udp(7000, ANY), udp(7001, ANY); a, b = u.fileno(), v.fileno(); ready(u)")
        app.do("def change(s, what, *groups):\n    for g in groups: s.setsockopt(0, what, socket.inet_aton(g) + socket.inet_aton(ME))")
        app.do("change(u, 35, '239.1.1.1', '239.1.1.2'); change(v, 35, '239.1.1.2')")
        a, b = app.do("a, b")

        def groups():
            return dict(re.findall(r"^\[([\d.]+)\] +([\d ]+?) *$", tool(app, "-v", "4"), re.M))
        assert groups() == {"239.1.1.1": f"{a}", "239.1.1.2": f"{a} {b}"}
        app.do("change(u, 36, '239.1.1.2')")
        assert groups() == {"239.1.1.1": f"{a}", "239.1.1.2": f"{b}"}
        app.do("u.close()")
        assert groups() == {"239.1.1.2": f"{b}"}


def test_a_dump_has_the_share_of_what_was_dropped(net):
    net.neighbours()
    with App(net.a, True, env={"VMA_TRACELEVEL": "INFO"}) as app, net.b.socket() as peer:
        app.do("u = udp(7000); u.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); ready(u)")
        for _ in range(100):
            peer.sendto(b"x" * 1000, (net.a.ip4, 7000))
        s = the_socket(app, seen(app, lambda f: sum(the_socket(app, f)[n] for n in ("rx_ready_packets", "rx_drop_packets")) == 100, "all are there"))
        had, lost = s["rx_ready_packets"], s["rx_drop_packets"]
        assert had and lost and s["rx_drop_bytes"] == 1000 * lost
        app.do(f"[u.recv(1000) for _ in range({had})]")
        tool(app, "-S", str(s["fd"]))
        share = f"{lost:.2f}%"
        wait_for(lambda: f"Rx pkt : max {had} / dropped {lost} ({share})\n" in app.text, 10, f"{share} in the dump")
        assert f"Rx byte : max {1000 * had} / dropped {1000 * lost} ({share}) / limit {s['rx_ready_limit']}\n" in app.text, app.text
        print(share)


@pytest.mark.parametrize("ours", [True, False])
def test_of_tcp_only_offloaded_traffic_is_counted(net, ours):
    """The same connection once more by the kernel, as a rule has it: nothing of what it carries is shown."""
    rules = net.tmp / "conf"
    rules.write_text("" if ours else "use os tcp_client *:*:*:*\n")
    with App(net.a, True, env={"VMA_CONFIG_FILE": rules}) as app, App(net.b, False) as peer:
        for x in (app, peer):
            x.do(HELPERS)
        peer.do("l = listener()")
        app.do("u = client(); u.sendall(b'x' * 3000)")
        peer.do("s = l.accept()[0]; exactly(s, 3000); s.sendall(b'y' * 2000)")
        app.do("exactly(u, 2000)")
        s = the_socket(app, figures(app))
        assert (s["proto"], s["offloaded"]) == ("tcp", ours)
        for way, carried in (("rx", 2000), ("tx", 3000)):
            counted = {name: n for name, n in s[way].items() if n}
            assert counted.pop("packets", 0) >= ours and counted == ({"bytes": carried} if ours else {}), (way, s[way])
        shown = re.search(rf"\tFd=\[{s['fd']}\]\n.*?={{54}}", tool(app, "-v", "3"), re.S)[0]
        print(shown)
        assert ("Rx and Tx where not active" in shown) is not ours


# --- what has no place of its own

def process_sum(app, name, **labels):
    """vma_process_<name> of the metrics, with those labels."""
    for line in tool_once(app, "--prometheus").splitlines():
        if line.startswith(f"vma_process_{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return int(float(line.split()[-1]))
    raise KeyError(name)


def tool_once(app, *args):
    net = app.host.net
    return subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(app.pid), *args], capture_output=True, text=True,
                          timeout=60 * PATIENCE, check=True).stdout


def test_sockets_beyond_the_number_count_when_they_are_closed(net):
    """VMA_STATS_FD_NUM=1: the second socket has no row."""
    net.neighbours()
    with App(net.a, True, env={"VMA_STATS_FD_NUM": 1}) as app, net.b.socket() as peer:
        app.do("u = udp(7000); v = udp(7001)")
        for _ in range(5):
            for port, name in ((7000, "u"), (7001, "v")):
                peer.sendto(b"x", (net.a.ip4, port))
                app.do(f"{name}.recv(10)")
        assert [s["local_port"] for s in figures(app)["sockets"]] == [7000]

        def packets():
            return sum(process_sum(app, "packets_total", direction="rx", path=path) for path in ("offloaded", "kernel"))
        assert packets() == 5
        app.do("v.close()")
        wait_for(lambda: packets() == 10, 20, "all in the sums")


@pytest.mark.parametrize("asked", [0, 1])
def test_the_share_that_a_set_polls_is_computed_where_it_is_asked_for(net, asked):
    """VMA_CPU_USAGE_STATS; 0 else, though the set polls as much."""
    with App(net.a, True, env={"VMA_CPU_USAGE_STATS": asked, "VMA_SELECT_POLL": -1}) as app:
        app.do("u = udp(7000); ready(u); e = select.epoll(); e.register(u, select.EPOLLIN)")
        app.start("[e.poll(0.1) for _ in range(60)]")
        shares = []

        def looked():
            shares.append(max((s["polling_cpu"] for s in figures(app)["epoll"]), default=0))
            return shares[-1] > 0 if asked else len(shares) == 8
        wait_for(looked, 20, lambda: f"a share, of {shares}", 0.3)
        app.answer()
        print(shares)
        assert (max(shares) > 0) is bool(asked)
