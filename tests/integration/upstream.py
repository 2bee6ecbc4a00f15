# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
upstream.py ADDRESS [time]: what a network has for its systems: names (RFC 1035, by UDP and TCP; those of many... do not fit into a datagram,
those of absent... are not there), and with `time` the time (RFC 5905). Any other name has the address 192.0.2.1.
"""

import socketserver
import struct
import sys
import threading
import time

A, IN, TRUNCATED, NO_SUCH_NAME = 1, 1, 0x0200, 3
UNIX_TO_NTP = 2208988800  # seconds


def answer(query, datagram):
    number, flags = struct.unpack_from("!HH", query)
    end = query.index(b"\0", 12) + 5
    question = query[12:end]
    flags = 0x8080 | flags & 0x0110
    name, kind = question[1:], struct.unpack_from("!H", question, len(question) - 4)[0]
    addresses = [] if kind != A else range(60) if name.startswith(b"many") else [0]
    if name.startswith(b"absent"):
        addresses, flags = [], flags | NO_SUCH_NAME
    if len(addresses) > 1 and datagram:
        addresses, flags = [], flags | TRUNCATED
    records = b"".join(struct.pack("!HHHIH4B", 0xC00C, A, IN, 60, 4, 192, 0, 2, n + 1) for n in addresses)
    return struct.pack("!HHHHHH", number, flags, 1, len(addresses), 0, 0) + question + records


class Names(socketserver.BaseRequestHandler):
    def handle(self):
        query, s = self.request
        s.sendto(answer(query, datagram=True), self.client_address)


class NamesByTcp(socketserver.StreamRequestHandler):
    def handle(self):
        while header := self.rfile.read(2):
            reply = answer(self.rfile.read(int.from_bytes(header, "big")), datagram=False)
            self.wfile.write(struct.pack("!H", len(reply)) + reply)


class Time(socketserver.BaseRequestHandler):
    def handle(self):
        query, s = self.request
        now = int((time.time() + UNIX_TO_NTP) * 2**32)
        s.sendto(struct.pack("!BBbbII4sQ8sQQ", 0x24, 1, 6, -20, 0, 0, b"TEST", now, query[40:48], now, now), self.client_address)


class Tcp(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


servers = [socketserver.UDPServer((sys.argv[1], 53), Names), Tcp((sys.argv[1], 53), NamesByTcp)]
if sys.argv[2:] == ["time"]:
    servers.append(socketserver.UDPServer((sys.argv[1], 123), Time))
for server in servers:
    threading.Thread(target=server.serve_forever).start()
print("serving", flush=True)
