# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vma_stats capture: what tshark reads of it is what the wire carried, and it never stands in the program's way."""

import collections
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

from differential import FAMILIES, PEER_PORT, App
from netns import PATIENCE, stopped, wait_for
from test_capabilities import NEEDED, offloaded, service

families = pytest.mark.parametrize("family", FAMILIES)
IN, OUT = "inbound", "outbound"
Packet = collections.namedtuple("Packet", "direction src sport dst dport proto len caplen payload comment interface")
FIELDS = ["frame.packet_flags_direction", "ip.src", "ipv6.src", "udp.srcport", "tcp.srcport", "ip.dst", "ipv6.dst", "udp.dstport",
          "tcp.dstport", "frame.len", "frame.cap_len", "udp.payload", "tcp.payload", "frame.comment", "frame.interface_name"]


def tshark(path, *args, fields=()):
    """What tshark prints of the file: it complains of nothing."""
    words = ["-T", "fields", *[w for f in fields for w in ("-e", f)]] if fields else []
    r = subprocess.run(["tshark", "-n", "-r", path, *args, *words], text=True, capture_output=True, timeout=60 * PATIENCE)
    errors = [line for line in r.stderr.splitlines() if "Running as user" not in line]
    assert r.returncode == 0 and not errors, r.stderr
    return r.stdout


def packets(path, *args):
    def either(*values):
        return next((v for v in values if v), "")
    found = []
    for line in tshark(path, *args, fields=FIELDS).splitlines():
        d, s4, s6, us, ts, d4, d6, ud, td, length, cap, up, tp, comment, interface = (line.split("\t") + [""] * 15)[:15]
        direction = {"0x00000001": IN, "1": IN, "0x00000002": OUT, "2": OUT}.get(d, d)
        found.append(Packet(direction, either(s4, s6), int(either(us, ts, "0")), either(d4, d6), int(either(ud, td, "0")),
                            "tcp" if ts else "udp", int(length), int(cap), bytes.fromhex(either(up, tp)), comment, interface))
    return found


class Capture:
    """A vma_stats capture that writes a file; the statistics are where the tests have them."""

    def __init__(self, net, *args, path=None, **options):
        self.net, self.path = net, path or net.tmp / f"capture-{os.urandom(4).hex()}.pcapng"
        self.process = net.a.popen([net.library.vma_stats, "capture", "-k", f"{net.tmp}/", "-w", self.path, *args], **options)

    def of(self, *apps):
        for app in apps:
            self.process.wait_text(rf"^vmastat: capturing process {app.pid} \(")
        return self

    def end(self):
        """Its last line's numbers: captured, received, lost."""
        status = self.process.stop(signal.SIGINT)
        assert status == 0, self.process.text
        return tuple(map(int, re.search(r"(\d+) packets captured, (\d+) received, (\d+) lost", self.process.text).groups()))

    def shown(self, *args):
        return packets(self.path, *args)


@contextlib.contextmanager
def wire(host, expression):
    """What tcpdump sees at the kernel's end of the wire; a list, filled at the end."""
    path, found = host.net.tmp / "wire.pcap", []
    # Room for what comes while it does not run: with the usual length of a packet its memory has eight.
    dump = host.popen(["tcpdump", "-i", host.dev, "-U", "-s", "2000", "-B", "16384", "--immediate-mode", "-w", path,
                       f"({expression}) or udp port 9"])
    dump.wait_text("listening on")
    yield found
    # A datagram of our own: when it is in the file, everything before it is.
    with host.socket() as last:
        last.sendto(b"the end", (host.net.a.ip4, 9))
        wait_for(lambda: b"the end" in path.read_bytes(), what="tcpdump's last packet")
    dump.stop(signal.SIGINT)
    found += [p for p in packets(path) if p.dport != 9]


def same_packets(captured, wire, me):
    """Each direction has the same packets in the same order."""
    for direction in (IN, OUT):
        ours = [(p.src, p.sport, p.dst, p.dport, p.len, p.payload) for p in captured if p.direction == direction]
        theirs = [(p.src, p.sport, p.dst, p.dport, p.len, p.payload) for p in wire if (p.src == me) == (direction == OUT)]
        assert ours == theirs, direction
        assert ours


@families
def test_udp_both_ways_is_what_the_wire_carried(net, family):
    net.neighbours()
    with App(net.a, True, family) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid).of(app)
        with wire(net.b, "udp") as there:
            for n in range(20):
                peer.sendto(b"%d" % n * (n * 7 + 1), app.at(7000))
                app.do("x, a = s.recvfrom(2000)")
                app.do("s.sendto(x[::-1], a)")
                assert peer.recv(2000) == (b"%d" % n * (n * 7 + 1))[::-1]
        assert capture.end() == (40, 40, 0)
        fd = app.do("s.fileno()")
    shown = capture.shown()
    same_packets(shown, there, app.at(0)[0])
    assert {p.comment for p in shown} == {f"pid {app.pid} fd {fd} (python3)"}
    assert {p.interface for p in shown} == {net.a.dev}


def tcp_pair(net, app, family):
    """A connection from a kernel socket of the other host to the program's c, accepted."""
    app.do("l = socket.socket(FAM, socket.SOCK_STREAM); l.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1);"
           "l.bind((ME, 8000)); l.listen(); await_ready(l, timeout=0.01)")
    app.start("c, _ = l.accept(); c.fileno()")
    peer = net.b.socket(socket.AF_INET6 if family == "6" else socket.AF_INET, socket.SOCK_STREAM)
    peer.connect(app.at(8000))
    return peer, app.answer()


@families
def test_a_tcp_connection_is_seen_from_its_syn_to_its_fin(net, family):
    net.neighbours()
    with App(net.a, True, family) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "tcp", "port", "8000").of(app)
        with wire(net.b, "tcp") as there:
            peer, _ = tcp_pair(net, app, family)
            with peer:
                for n in range(20):
                    peer.sendall(b"%d" % n * 300)
                    app.do(f"x = c.recv({300 * len(str(n))}, socket.MSG_WAITALL); c.sendall(x[::-1])")
                    assert len(peer.recv(300 * len(str(n)), socket.MSG_WAITALL)) == 300 * len(str(n))
                fds = app.do("c.fileno()"), app.do("l.fileno()")
                app.do("c.close()")
                assert peer.recv(10) == b""
            # The peer has its last acknowledgement.
            wait_for(lambda: "8000" not in net.b.run(["ss", "-Htan"]).text, what="the peer's connection gone")
        capture.end()
    shown = capture.shown()
    same_packets(shown, there, app.at(0)[0])
    flags = [line.split() for line in tshark(capture.path, fields=["tcp.srcport", "tcp.flags.str"]).splitlines()]
    assert "S" in flags[0][1]
    # One of each side. Where the last acknowledgement comes late the peer repeats its own, and refuses what is too much then.
    assert len({port for port, flag in flags if "F" in flag}) == 2
    accepted, listener = (f"pid {app.pid} fd {fd} (python3)" for fd in fds)
    assert [p.comment for p in shown if p.payload].count(accepted) >= 40
    # Before accept() there is the listener, after close() nobody.
    assert {p.comment for p in shown} <= {accepted, listener, f"pid {app.pid} (python3)"}


def test_a_bulk_that_leaves_in_large_frames_is_whole(net):
    net.neighbours()
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid, "tcp").of(app)
        peer, _ = tcp_pair(net, app, "4")
        with peer:
            app.start("c.sendall(bytes(range(256)) * 8192)")
            got = b""
            while len(got) < 256 * 8192:
                got += peer.recv(1 << 20)
            app.answer()
        capture.end()
    sent = [p for p in capture.shown() if p.direction == OUT and p.payload]
    assert max(p.len for p in sent) > 1514
    assert all(p.caplen == p.len for p in sent)
    assert sum(len(p.payload) for p in sent) >= len(got)
    # tshark puts the stream together: nothing is missing in it.
    text = tshark(capture.path, "-q", "-z", "follow,tcp,raw,0")
    assert text.count("0001020304050607") >= 8192


def test_the_filter_the_direction_and_the_interface_choose(net):
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); t = udp(7002); [await_ready(x, timeout=0.01) for x in (s, t)]")
        capture = Capture(net, "-Q", "in", "-i", net.a.dev, "udp", "port", "7002").of(app)
        for port in (7000, 7002) * 5:
            peer.sendto(b"x", app.at(port))
            app.do(f"x, a = {'s' if port == 7000 else 't'}.recvfrom(10); s.sendto(x, a)")
        assert capture.end() == (5, 20, 0)
        shown = capture.shown()
        assert [(p.direction, p.dport) for p in shown] == [(IN, 7002)] * 5
        other = Capture(net, "-i", "eth77").of(app)
        peer.sendto(b"x", app.at(7000))
        app.do("s.recv(10)")
        assert other.end() == (0, 1, 0)


def test_a_snapshot_is_cut_and_the_file_is_the_users_alone(net):
    """Whatever the umask: others may not read what a program says."""
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-s", "64", "-c", "6", umask=0).of(app)
        for n in (10, 20, 21, 22, 23, 1000):
            peer.sendto(bytes(n), app.at(7000))
            app.do("s.recv(2000)")
        assert capture.process.wait() == 0, capture.process.text
    shown = [(p.len, p.caplen) for p in capture.shown()]
    print(shown, oct(capture.path.stat().st_mode))
    assert shown == [(42 + n, min(42 + n, 64)) for n in (10, 20, 21, 22, 23, 1000)]
    assert capture.path.stat().st_mode & 0o7777 == 0o600


def test_without_a_file_each_packet_is_a_line(net):
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        tool = net.a.popen([net.library.vma_stats, "capture", "-k", f"{net.tmp}/", "-c", "2"])
        tool.wait_text(f"^vmastat: capturing process {app.pid}")
        peer.sendto(b"12345", app.at(7000))
        app.do("x, a = s.recvfrom(10); s.sendto(x, a)")
        assert tool.wait() == 0
        fd = app.do("s.fileno()")
        stamp = r"^\d\d:\d\d:\d\d\.\d{9} "
        tool.wait_text(stamp + rf"{net.a.dev} in  pid {app.pid} fd {fd}  {net.b.ip4}\.{PEER_PORT} > {app.me}\.7000: UDP, length 5$")
        tool.wait_text(stamp + rf"{net.a.dev} out pid {app.pid} fd {fd}  {app.me}\.7000 > {net.b.ip4}\.{PEER_PORT}: UDP, length 5$")


def test_a_full_ring_counts_what_it_loses_and_the_program_goes_on(net):
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); s.connect((PEER, 7001)); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid, "-B", "1024").of(app)
        with stopped(capture.process.pid):
            for _ in range(30):
                app.do("[s.send(bytes(1400)) for _ in range(50)]")
                for _ in range(50):
                    assert len(peer.recv(2000)) == 1400
        captured, received, lost = capture.end()
        assert captured == received < 1500 and received + lost == 1500
    assert len(capture.shown()) == captured
    # The interface statistics block: received, dropped.
    text = capture.path.read_bytes()
    assert lost.to_bytes(8, "little") in text[-200:] and (1500).to_bytes(8, "little") in text[-200:]


def memory_of(pid):
    def names(f):
        try:
            return os.readlink(f)
        except FileNotFoundError:  # closed since it was listed
            return ""
    return [f for f in pathlib.Path(f"/proc/{pid}/fd").iterdir() if "vma-capture" in names(f)]


def test_a_tool_that_is_killed_ends_the_capture(net):
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid).of(app)
        assert memory_of(app.pid) and "vma-capture" in pathlib.Path(f"/proc/{app.pid}/maps").read_text()
        capture.process.kill(signal.SIGKILL)
        capture.process.wait()
        wait_for(lambda: not memory_of(app.pid), what="its memory given back")
        wait_for(lambda: "vma-capture" not in pathlib.Path(f"/proc/{app.pid}/maps").read_text(), what="nothing of it mapped")
        # And it can be captured again.
        again = Capture(net, "-p", app.pid).of(app)
        peer.sendto(b"x", app.at(7000))
        app.do("s.recv(10)")
        assert again.end() == (1, 1, 0)
        wait_for(lambda: not memory_of(app.pid), what="its memory given back")


def looks(tool):
    """The tool has looked at the processes anew: it does so after each 25 pauses at the latest."""
    def pauses():
        return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{tool.pid}/status").read_text(), re.M)[1])
    before = pauses()
    wait_for(lambda: tool.popen.poll() is not None or pauses() > before + 60, what="the tool's next look")
    assert tool.popen.poll() is None, tool.text


def test_a_tool_that_follows_a_killed_one_at_once_waits_for_its_end(net):
    net.neighbours()
    with App(net.a, True) as app, app.peer_socket() as peer:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        first = Capture(net, "-p", app.pid).of(app)
        with stopped(app.pid):
            first.process.kill(signal.SIGKILL)
            first.process.wait()
            second = Capture(net, "-p", app.pid)
            looks(second.process)
        second.of(app)
        peer.sendto(b"x", app.at(7000))
        app.do("s.recv(10)")
        assert second.end() == (1, 1, 0)


def test_of_two_tools_that_start_together_one_captures(net):
    net.neighbours()
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        tools = [Capture(net, "-p", app.pid) for _ in range(2)]
        wait_for(lambda: any(t.process.popen.poll() is not None for t in tools), what="one of them refused")
        tools.sort(key=lambda t: t.process.popen.poll() is None)
        assert tools[0].process.wait() == 1
        assert f"process {app.pid} is left out: another vma_stats captures it" in tools[0].process.text
        tools[1].of(app)
        app.do("s.sendto(b'x', (PEER, 7001))")
        assert tools[1].end() == (1, 1, 0)


@pytest.mark.parametrize("end, status", [(App.close, 0), (lambda app: (app.popen.kill(), app.close())[1], -signal.SIGKILL)],
                         ids=["ends", "is-killed"])
def test_what_ended_programs_gave_is_given_back_while_the_capture_goes_on(net, end, status):
    net.neighbours()
    capture = Capture(net, "udp")
    comments = []
    for _ in range(3):
        app = App(net.a, True)
        with app.popen.stdout:
            app.do("s = udp(7000); await_ready(s, timeout=0.01)")
            capture.of(app)
            app.do("s.sendto(b'x', (PEER, 7001))")
            comments.append(f"pid {app.pid} fd {app.do('s.fileno()')} (python3)")
            assert end(app) == status
        wait_for(lambda: not memory_of(capture.process.pid), what="the program's memory given back")
    assert capture.end() == (3, 3, 0)
    assert [p.comment for p in capture.shown()] == comments


def test_two_tools_do_not_take_each_others_packets(net):
    net.neighbours()
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        first = Capture(net, "-p", app.pid).of(app)
        second = Capture(net, "-p", app.pid)
        assert second.process.wait() == 1
        assert f"process {app.pid} is left out: another vma_stats captures it" in second.process.text
        app.do("s.sendto(b'x', (PEER, 7001))")
        assert first.end() == (1, 1, 0)


def test_another_user_is_refused(net):
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        os.chmod(net.tmp, 0o755)
        tool = net.a.popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", net.library.vma_stats, "capture",
                            "-k", f"{net.tmp}/", "-p", app.pid])
        assert tool.wait() == 1
        assert re.search(rf"process {app.pid} is left out: .*vmastat.{app.pid} cannot be opened for writing: Permission denied", tool.text), tool.text
        assert not memory_of(app.pid)


@pytest.mark.no_sanitize  # as test_capabilities.py, whose service this is
def test_a_user_captures_his_own_process_with_its_capabilities(net, open_directory):
    """ptrace(2)'s rule: who has fewer than the process may not look into it, and is told so."""
    net.neighbours()
    running = service(net, NEEDED, env={"VMA_STATS_SHMEM_DIR": open_directory})
    wait_for(lambda: offloaded(net), 20, "the service is offloaded")

    def capture(*rights):
        return net.a.popen(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *rights, net.library.vma_stats, "capture",
                            "-k", f"{open_directory}/", "-p", running.pid, "-c", 2])
    refused = capture()
    assert refused.wait() == 1
    assert "Permission denied: it may more than this user; root, or a tool with the same capabilities" in refused.text
    words = ",".join(f"+{c}" for c in NEEDED)

    def captures():
        tool = capture("--inh-caps", words, "--ambient-caps", words)
        wait_for(lambda: "capturing process" in tool.text or not tool.alive(), 20, "the capture")
        if not tool.alive():
            assert "another vma_stats captures it" in tool.text or "is left out" in tool.text, tool.text
            return None
        return tool
    tool = wait_for(captures, 30, "what the refused one has asked for is over")
    assert offloaded(net)
    assert tool.wait() == 0 and "2 packets captured, 2 received, 0 lost" in tool.text, tool.text


def test_a_process_that_starts_meanwhile_is_taken_in(net):
    net.neighbours()
    capture = Capture(net, "udp")
    with App(net.a, True) as app, App(net.a, True) as other:
        for a, port in ((app, 7000), (other, 7010)):
            a.do(f"s = udp({port}); await_ready(s, timeout=0.01)")
        capture.of(app, other)
        app.do("s.sendto(b'one', (PEER, 7001))")
        other.do("s.sendto(b'two', (PEER, 7001))")
        capture.end()
    assert [(p.payload, p.comment.split(" fd")[0]) for p in capture.shown()] == [(b"one", f"pid {app.pid}"), (b"two", f"pid {other.pid}")]


def test_a_child_of_fork_is_a_process_of_its_own(net):
    net.neighbours()
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid).of(app)
        app.do("p = os.fork(); (s.sendto(b'by the child', (PEER, 7001)), os._exit(0)) if not p else os.waitpid(p, 0)")
        app.do("t = udp(7005); t.sendto(b'by the parent', (PEER, 7001))")
        capture.end()
    assert [p.payload for p in capture.shown()] == [b"by the parent"]


def test_bytes_that_are_no_packets_cost_the_tool_a_line(net):
    """The program writes over what it gives to the tool."""
    net.neighbours()
    with App(net.a, True) as app:
        app.do("s = udp(7000); await_ready(s, timeout=0.01)")
        capture = Capture(net, "-p", app.pid).of(app)
        with stopped(capture.process.pid), open(memory_of(app.pid)[0], "r+b") as f:
            f.seek(4096)
            f.write(b"\xff" * 4096)
        assert capture.process.wait() == 1
        assert f"process {app.pid} is left out: what it gives are no packets" in capture.process.text
        app.do("s.sendto(b'x', (PEER, 7001))")


@pytest.mark.parametrize("args, text", [
    (["-p", "0"], "-p '0': give a number from 1 to 2147483647"),
    (["-Q", "up"], "-Q 'up': give in, out or inout"),
    (["-B", "5"], "-B '5': give a number from 1024 to 262144"),
    (["udp", "prot", "5"], "filter 'udp prot 5': "),
    (["-w", "/nowhere/x"], "/nowhere/x cannot be written: No such file or directory"),
])
def test_mistakes_get_a_line(library, args, text):
    r = subprocess.run([library.vma_stats, "capture", *args], text=True, capture_output=True, timeout=20 * PATIENCE)
    assert r.returncode == 1 and r.stderr.startswith("vmastat: capture: ") and text in r.stderr, r.stderr


def test_a_process_that_is_not_there(library, tmp_path):
    """It has ended, or never was; nor has one the library that writes no statistics here."""
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        r = subprocess.run([library.vma_stats, "capture", "-k", tmp_path, "-p", str(pid)], text=True, capture_output=True, timeout=20 * PATIENCE)
        assert r.returncode == 1 and not r.stdout, r
        assert r.stderr == f"vmastat: process {pid} is left out: VMA statistics data for process id {pid} not found\n"
