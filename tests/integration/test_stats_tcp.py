# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What vma_stats shows of TCP sockets: the same as the program's own TCP_INFO, and as what it did."""

import difflib
import json
import re
import subprocess

import pytest

import exposition
from differential import App
from netns import PATIENCE, ip, wait_for
from screen import Terminal
from test_tcp_both import HELPERS, PORT, connected

INFO = """
import fcntl, struct, termios
def info():
    d = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 248)
    u = lambda at: struct.unpack_from('I', d, at)[0]
    return {'srtt_us': u(68), 'mss': u(16), 'cwnd': u(80), 'ssthresh': u(76), 'retransmits': u(100), 'rto_us': u(8)}
def number(request):
    b = bytearray(4)
    fcntl.ioctl(s.fileno(), request, b)
    return struct.unpack('i', b)[0]
"""


def tool(app, *args):
    net = app.host.net
    return subprocess.run([net.library.vma_stats, "-k", net.tmp, "-p", str(app.pid), *args],
                          capture_output=True, text=True, timeout=20 * PATIENCE, check=True).stdout


def sockets(app):
    return json.loads(tool(app, "--json", "-c", "1").splitlines()[-1])["sockets"]


def one(app, fd, ready):
    """The socket's figures once ready(figures): the library brings them there each 100 ms."""
    def look():
        found = [s for s in sockets(app) if s["fd"] == fd]
        return found[0] if found and ready(found[0]) else None
    return wait_for(look, 10, f"fd {fd} in vma_stats", 0.05)


def test_queues_and_figures_are_the_program_s_own(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(INFO)
        fd = server.do("s.fileno()")
        client.do("[s.send(b'x' * 1000) for i in range(30)]")
        waiting = one(server, fd, lambda s: s["rx_ready_bytes"] == 30000)
        assert waiting["rx_ready_packets"] >= 1 and waiting["rx_ready_limit"] >= 30000
        assert waiting["state"] == "ESTABLISHED" and waiting["offloaded"] and waiting["tcp"]["rcvbuf_used"] >= 30000
        assert waiting["rx_ready_limit"] == server.do("s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)")
        assert waiting["inode"] == server.do("os.fstat(s.fileno()).st_ino")
        server.do("len(exactly(s, 30000))")
        empty = one(server, fd, lambda s: s["rx_ready_bytes"] == 0)
        assert empty["rx_ready_bytes_max"] == 30000 and empty["rx_ready_packets_max"] >= 1
        # The peer reads nothing: what it has no room for stays unacknowledged.
        server.do("s.setblocking(False)")
        server.ask("while True: s.send(b'y' * 65536)")
        names = "mss", "cwnd", "ssthresh", "retransmits"

        def same():
            # It is a live connection: cwnd is halved when it was not used for an RTO, for one.
            full = one(server, fd, lambda s: s["tx_ready_bytes"] and s["tx_ready_bytes"] == server.do("number(termios.TIOCOUTQ)"))
            own = server.do("info()")
            print([(name, full["tcp"][name], own[name]) for name in names])
            return full if all(full["tcp"][name] == own[name] for name in names) else None

        full = wait_for(same, what="the same figures twice")
        assert full["tcp"]["write_seq"] - full["tcp"]["snd_una"] & 0xffffffff == full["tx_ready_bytes"]


def test_metrics_and_the_live_view_show_the_connection(net):
    with connected(net, "4", True, False) as (server, client):
        server.do(INFO)
        fd = server.do("s.fileno()")
        client.do("[s.send(b'x' * 1000) for i in range(30)]")
        one(server, fd, lambda s: s["rx_ready_bytes"] == 30000)
        assert server.do("len(exactly(s, 30000))") == 30000
        read = one(server, fd, lambda s: s["rx_ready_bytes"] == 0)
        metrics = exposition.parse(tool(server, "--prometheus"))
        me = {"pid": str(server.pid), "fd": str(fd)}
        rx = {"direction": "rx", "path": "offloaded"}
        assert metrics["vma_socket_bytes_total"].value(**rx, **me) == read["rx"]["bytes"] == 30000
        assert metrics["vma_process_bytes_total"].value(pid=str(server.pid), **rx) == 30000
        assert metrics["vma_tcp_mss"].value(**me) == server.do("info()")["mss"]
        peer = "%s:%d" % server.do("s.getpeername()")
        assert metrics["vma_socket_info"].value(remote=peer, state="ESTABLISHED", offloaded="true", **me) == 1
        live = Terminal([net.library.vma_stats, "--live", "-k", net.tmp, "-p", server.pid])
        try:
            live.wait(f"\n{server.pid:>7} ")
            live.type("\r")
            live.wait(lambda text: re.search(rf"^ *{fd} tcp ESTABLISHED {re.escape(peer)} ", text, re.M), f"fd {fd}")
            live.wait("▁")
            client.do("s.send(b'x' * 1000)")
            assert server.do("len(exactly(s, 1000))") == 1000
            live.wait("█")
            live.type("q")
            assert live.ended() == 0 and live.restored()
        finally:
            live.close()


def test_netstat_lists_connections_and_listeners(net):
    with connected(net, "4", True, False) as (server, client):
        listener = server.do("l.fileno()")
        client.do("more = [client(), client()]")
        one(server, listener, lambda s: s["rx_ready_packets"] == 2 and s["inode"])
        one(server, server.do("s.fileno()"), lambda s: s["inode"])
        rows = [r.split() for r in tool(server, "-v", "5").splitlines() if r.startswith("tcp")]
        inode = {x: str(server.do(f"os.fstat({x}.fileno()).st_ino")) for x in "ls"}
        # Proto, Offloaded, Recv-Q, Send-Q, both addresses, State, Inode, PID/Program name
        assert ["tcp", "Yes", "2", "0", f"0.0.0.0:{PORT}", "0.0.0.0:*", "LISTEN", inode["l"]] in [r[:8] for r in rows], rows
        peer = "%s:%d" % server.do("s.getpeername()")
        assert ["tcp", "Yes", "0", "0", f"{net.a.ip4}:{PORT}", peer, "ESTABLISHED", inode["s"]] in [r[:8] for r in rows], rows


@pytest.mark.parametrize("poll, counter, other", [("0", "rx_poll_miss", "rx_poll_hit"), ("-1", "rx_poll_hit", "rx_poll_miss")])
@pytest.mark.parametrize("kind", ["tcp", "udp"])
def test_a_receive_that_slept_is_no_poll_hit(net, kind, poll, counter, other):
    with App(net.a, True, env={"VMA_RX_POLL": poll}) as app, App(net.b, False) as peer:
        for x in (app, peer):
            x.do(HELPERS)
        if kind == "tcp":
            app.do("l = listener(); ready(l)")
            app.start("s, who = l.accept()")
            peer.do("s = client(); give = s.send")
            app.answer()
        else:
            app.do(f"s = udp({PORT}); ready(s)")
            peer.do(f"s = udp(7200); give = lambda d: s.sendto(d, (PEER, {PORT}))")
        fd = app.do("s.fileno()")
        before = one(app, fd, lambda s: True)

        def waited():
            """One receive of a byte that comes later, as a rule: whether it was counted as one that waited."""
            app.start("s.recv(10)")
            if poll == "0":
                wait_for(lambda: open(f"/proc/{app.pid}/wchan").read() not in ("0", ""), 10, "it sleeps")
            peer.do("give(b'x')")
            assert app.answer() == b"x"
            now = one(app, fd, lambda s: True)
            assert now[other] == before[other], now
            return now[counter] > before[counter]
        wait_for(waited, 20, f"{counter} counts")


def deaf(net, way):
    """The peer's address goes, or comes back: its kernel drops what comes for it meanwhile."""
    ip("-n", net.b.name, "addr", way, f"{net.b.ip4}/24", "dev", net.b.dev)


def test_retransmissions_are_the_socket_s_and_the_ring_s(net):
    net.neighbours()
    with connected(net, "4", True, False) as (server, client):
        server.do(INFO)
        fd = server.do("s.fileno()")
        deaf(net, "del")
        server.do("s.send(b'lost')")
        seen = one(server, fd, lambda s: s["tx_retransmits"] >= 2)
        assert seen["tcp"]["retransmits"] == seen["tx_retransmits"] and seen["tcp"]["retries"] >= 1
        deaf(net, "add")
        assert client.do("exactly(s, 4)") == b"lost"
        done = one(server, fd, lambda s: s["tx_ready_bytes"] == 0)
        assert done["tx_retransmits"] == server.do("info()")["retransmits"]
        ring = json.loads(tool(server, "--json", "-c", "1").splitlines()[-1])["rings"][0]
        assert ring["retransmits"] >= done["tx_retransmits"]
        assert f"Retransmissions: {done['tx_retransmits']}\n" in tool(server, "-v", "3", "-c", "1")


DUMP = """
============ DUMPING FD {fd} STATISTICS ============
==================== SOCKET FD ===================
Fd number : {fd}
Bind info : {me}
Connection info : {peer}
Protocol : PROTO_TCP
Is closed : false
Is blocking : true
Rx reuse buffer pending : false
Rx reuse buffer postponed : false
Is offloaded : true
Tx Offload : 64 KB / {tx[packets]} / 0 / 0 [bytes/packets/eagains/errors]
Rx Offload : 2 KB / {rx[packets]} / 0 / 0 [bytes/packets/eagains/errors]
Rx byte : max {rx_ready_bytes_max} / dropped 0 (0.00%) / limit {rx_ready_limit}
Rx pkt : max {rx_ready_packets_max} / dropped 0 (0.00%)
Rx poll : {rx_poll_miss} / {rx_poll_hit} ({polls}%) [miss/hit]
Socket state : TCP_SOCK_CONNECTED_RDWR
Connection state : TCP_CONN_CONNECTED
Receive buffer : m_rcvbuff_current {tcp[rcvbuf_used]}, m_rcvbuff_max {rx_ready_limit}, out of order 0
Rx lists size : m_rx_pkt_ready_list 1, bytes 7
PCB state : ESTABLISHED
PCB flags : 0x{tcp[flags]:x}
Segment size : mss {own[mss]}, advtsd_mss {own[mss]}
Window scaling : ENABLED, rcv_scale {tcp[rcv_wscale]}, snd_scale {tcp[snd_wscale]}
Receive window : rcv_wnd {rcv_wnd}, rcv_ann_wnd {rcv_ann_wnd}, rcv_wnd_max {rcv_wnd_max}, rcv_wnd_max_desired {desired}
Send window : snd_wnd {snd_wnd}, snd_wnd_max {snd_wnd_max}
Congestion : cwnd {bytes}, cwnd_segments {own[cwnd]}, ssthresh_segments {own[ssthresh]}
Receiver data : rcv_nxt {tcp[rcv_nxt]}, rcv_ann_right_edge {right_edge}
Sender data : snd_nxt {tcp[snd_nxt]}, snd_wl1 {tcp[snd_wl1]}, snd_wl2 {tcp[snd_una]}, snd_una {tcp[snd_una]}, write_seq {tcp[write_seq]}
Send buffer : snd_buf {room}, max_snd_buff {tcp[sndbuf]}, used {tcp[sndbuf_used]}
Retransmission : rtime {rtime} us, rto {own[rto_us]} us, nrtx {tcp[retries]}, total {own[retransmits]}
RTT variables : rttest {own[srtt_us]} us, rtseq {tcp[snd_una]}, rttvar {tcp[rttvar_us]} us
First unsent : {unsent}
First unacked : {first}
Last unacked : {last}
Acknowledge : lastack {tcp[snd_una]}, segments {tcp[unacked]}, sacked {tcp[sacked]}, lost {tcp[lost]}
==================================================
==================================================
""".strip().splitlines()


def piece(seq, length):
    return f"seqno {seq}, len {length}, seqno + len {seq + length & 0xffffffff}" if length else "NULL"


def dump_of(app, fd, figures, rtime):
    """What -S has to write of a connection with these figures."""
    t, own = figures["tcp"], app.do("info()")
    edge = t["rcv_wup"] + t["rcv_wnd"]
    hits, misses = figures["rx_poll_hit"], figures["rx_poll_miss"]
    scaled = lambda n, shift: f"{n} ({n >> shift})"
    values = dict(
        figures, fd=fd, own=own, me="%s:%d" % app.do("s.getsockname()"), peer="%s:%d" % app.do("s.getpeername()"), rtime=rtime,
        polls=f"{100 * hits / (hits + misses) if hits + misses else 0:.2f}", bytes=own["cwnd"] * own["mss"], right_edge=edge & 0xffffffff,
        rcv_wnd=scaled(t["rcv_wnd"], t["rcv_wscale"]), rcv_ann_wnd=scaled(edge - t["rcv_nxt"] & 0xffffffff, t["rcv_wscale"]),
        rcv_wnd_max=scaled(t["rcv_wnd_max"], t["rcv_wscale"]), desired=scaled(t["rcvbuf"] // 2, t["rcv_wscale"]),
        snd_wnd=scaled(t["snd_wnd"], t["snd_wscale"]), snd_wnd_max=scaled(t["snd_wnd_max"], t["snd_wscale"]),
        room=t["sndbuf"] - t["sndbuf_used"], unsent=piece(t["snd_nxt"], t["write_seq"] - t["snd_nxt"] & 0xffffffff),
        first=piece(t["snd_una"], t["unacked_first_len"]),
        last=piece(t["unacked_last_seq"], t["snd_nxt"] - t["unacked_last_seq"] & 0xffffffff if t["unacked_first_len"] else 0))
    return [line.format(**values) for line in DUMP]


def dumped(app, fd):
    """The lines that -S writes to the program's log, without what stands before each."""
    begin, at = f"DUMPING FD {fd} STATISTICS", len(app.text)
    tool(app, "-S", str(fd), "info")
    text = wait_for(lambda: app.text[at:] if len(re.findall(r"={50}\n", app.text[at:])) == 2 else None, 10, "the dump in the log")
    assert begin in text
    return re.findall(r"VMA INFO\s*: (.*)", text)


@pytest.mark.parametrize("way", ["acknowledged", "lost"])
def test_every_line_of_a_dump(net, way):
    """Of a connection that has all acknowledged, and of one whose peer does not hear: all that is on its way is in the dump."""
    net.neighbours()
    with connected(net, "4", True, False, env={"VMA_TRACELEVEL": "INFO"}) as (server, client):
        server.do(INFO)
        fd = server.do("s.fileno()")
        client.do("s.send(b'x' * 2048)")
        assert server.do("len(exactly(s, 2048))") == 2048
        assert server.do("s.send(b'y' * 65536)") == 65536 == client.do("len(exactly(s, 65536))")
        client.do("s.send(b'seven b')")
        before = one(server, fd, lambda s: s["rx_ready_bytes"] == 7 and s["tx_ready_bytes"] == 0)
        if way == "acknowledged":
            lines, after = dumped(server, fd), one(server, fd, lambda s: True)
            assert before["tcp"] == after["tcp"]
            assert lines == dump_of(server, fd, before, 0)
            return
        deaf(net, "del")
        try:
            server.do("s.send(b'z' * 100)")
            # By then each retransmission is half a second from the next.
            seen = one(server, fd, lambda s: s["tcp"]["retries"] >= 3)
            lines = wait_for(lambda: steady(server, fd), 20, "a dump between two retransmissions")
        finally:
            deaf(net, "add")
        assert seen["tcp"]["unacked_first_len"] == 100 and "First unacked : NULL" not in lines


def steady(app, fd):
    """A dump before and after which the figures are the same, but for the time that the timer has left; else None."""
    def figures():
        s = one(app, fd, lambda s: True)
        return {**s, "tcp": {**s["tcp"], "rtime_us": 0}}
    before = figures()
    lines = dumped(app, fd)
    if figures() != before:
        return None
    left = [int(re.match(r"Retransmission : rtime (\d+) us", l).group(1)) for l in lines if l.startswith("Retransmission")]
    want = dump_of(app, fd, before, left[0])
    # The text has 64 KB of what was sent, 100 bytes do not show. A retransmission is due, or has just been.
    if not left[0] or lines != want:
        print("\n".join(difflib.unified_diff(want, lines, "wanted", "said", lineterm="")))
        return None
    return lines
