# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Answers of many connections at once: the ring has room for all of them, and what it had no room for is counted."""

import socket
import struct
import threading

import pytest

from differential import App
from netns import stopped, wait_for
from test_stats_counters import figures, seen

STREAMS = 45
ANSWER = 100 * 1024
ROUNDS = 60
CONNECTIONS = f"""
def connect(port):
    global socks
    socks = [socket.create_connection((PEER, port)) for _ in range({STREAMS})]
def ask(): [s.send(b'?') for s in socks]
def take():
    for s in socks:
        left = {ANSWER}
        while left: left -= len(s.recv(left))
def rounds(n):
    for _ in range(n): ask(); take()
"""


class Server:
    """Kernel sockets: ANSWER bytes for each byte that comes."""

    def __init__(self, host):
        self.listener = host.socket(kind=socket.SOCK_STREAM)
        self.listener.bind((host.ip4, 8000))
        self.listener.listen(STREAMS)
        self.connections = []
        self.go = threading.Event()
        self.go.set()

    def accept(self):
        for _ in range(STREAMS):
            connection = self.listener.accept()[0]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * ANSWER)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")  # not paced
            self.connections.append(connection)
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        while connection.recv(1):
            self.go.wait()
            connection.sendall(bytes(ANSWER))

    def tcp_info(self, offset):
        """One figure of struct tcp_info (linux/tcp.h) of each connection."""
        return [struct.unpack_from("I", c.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), offset)[0] for c in self.connections]

    def of_an_answer(self):
        """The full segments of an answer, by tcpi_snd_mss; Nagle keeps the rest."""
        return ANSWER // min(self.tcp_info(16))

    def can_send_at_once(self):
        """Each congestion window (tcpi_snd_cwnd) has room for an answer; on a busy machine one has been made small before."""
        return min(self.tcp_info(80)) >= self.of_an_answer()

    def under_way(self):
        """Segments that nobody has acknowledged (tcpi_unacked), when each connection's answer is: until then 0."""
        unacked = self.tcp_info(24)
        return sum(unacked) if min(unacked) >= self.of_an_answer() else 0


@pytest.mark.net(mtu=9000)  # so that no frame is so short that it wastes most of its buffers
def test_the_answers_of_many_connections_find_room_in_the_ring(net):
    """
    After rounds in which nothing else came the program stops, and the answers of all connections are on their way at once:
    4.6 MB, which fit the ring's 8 MiB. Who lost one would wait for a retransmission, 200 ms at the least.
    """
    net.neighbours()
    net.b.run(["sysctl", "-qw", "net.ipv4.tcp_slow_start_after_idle=0"])
    server = Server(net.b)
    with App(net.a, True) as app:
        app.do(CONNECTIONS)
        acceptor = threading.Thread(target=server.accept, daemon=True)
        acceptor.start()
        app.do("connect(8000)")
        acceptor.join()
        app.do(f"rounds({ROUNDS})")
        wait_for(lambda: app.do("rounds(1)") or server.can_send_at_once(), 60, "congestion windows as large as an answer")
        retransmitted = net.b.counters()["TcpRetransSegs"]
        server.go.clear()
        app.do("ask()")
        with stopped(app.pid):
            server.go.set()
            most = wait_for(server.under_way, 20, "all answers under way")
        app.do("take()")
        packets = figures(app)["rings"][0]["rx_packets"]
        app.do("rounds(1)")
        now = seen(app, lambda f: f["rings"][0]["rx_packets"] > packets, "figures of now")["rings"][0]
        print(f"{most} segments at once, {now['rx_drop_no_buf']} frames dropped, "
              f"{net.b.counters()['TcpRetransSegs'] - retransmitted} segments sent again")
        assert now["rx_drop_no_buf"] == 0
