# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
One connection, and what three places say of it: the program's own TCP_INFO and ioctls, vma_stats --json, and the module's text in
/sys/kernel/vma/process/<pid>. They agree to the byte, over either ring.
"""

import json
import subprocess

import pytest

from cards import CardNet, unload
from netns import Net, wait_for
from test_stats_tcp import INFO
from test_tcp_both import connected
from vma_ko import SYSFS

RECEIVED, READ, SENT = 30000, 12345, 54321
STATES = ["", "ESTABLISHED", "SYN_SENT", "SYN_RCVD", "FIN_WAIT_1", "FIN_WAIT_2", "TIME_WAIT", "CLOSED", "CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING"]
# Of struct tcp_info, besides what INFO has.
MORE = """
def more():
    d = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 248)
    return {'state': d[0], 'wscales': d[6], 'acked': struct.unpack_from('Q', d, 120)[0], 'received': struct.unpack_from('Q', d, 128)[0]}
"""


@pytest.fixture(params=[Net, CardNet], ids=["xdp", "mlx5"])
def wire(request, library, tmp_path, vma_ko):
    n = request.param(library, tmp_path)
    n.neighbours()
    yield n
    n.close()
    if request.param is CardNet:
        unload()


def rows(text):
    """The lines of a text, each as words by name."""
    return [dict(zip(words[::2], words[1::2])) for words in map(str.split, text.splitlines())]


def places(net, app):
    """What vma_stats and the module's three files say, at a moment when none of them changes."""
    mine = SYSFS / "process" / str(app.pid)

    def texts():
        return [(mine / name).read_text() for name in ("stats", "rings", "sockets")]

    def still():
        before = texts()
        seen = subprocess.run([net.library.vma_stats, "-p", str(app.pid), "--json", "-c", "1"], capture_output=True, text=True, check=True)
        assert "(kernel module)" in seen.stderr
        return (json.loads(seen.stdout), *before) if texts() == before else None
    return wait_for(still, 60, "two looks that are the same")


def test_three_places_say_the_same(wire):
    with connected(wire, "4", True, False, env={"VMA_STATS_FD_NUM": "20"}) as (server, client):
        server.do(INFO + MORE)
        client.do(f"s.sendall(bytes({RECEIVED}))")
        assert server.do(f"len(exactly(s, {READ}))") == READ
        assert server.do(f"s.sendall(bytes({SENT}))") is None and client.do(f"len(exactly(s, {SENT}))") == SENT
        fd = server.do("s.fileno()")

        def arrived():
            seen = places(wire, server)[0]
            s, = [s for s in seen["sockets"] if s["fd"] == fd]
            return s["rx_ready_bytes"] == RECEIVED - READ and s["tx_ready_bytes"] == 0
        wait_for(arrived, 60, "all that was sent is there, and acknowledged")
        own, more = server.do("info()"), server.do("more()")
        seen, sums_text, rings_text, sockets_text = places(wire, server)
        assert server.do("info()") == own and server.do("more()") == more

        s, = [s for s in seen["sockets"] if s["fd"] == fd]
        text, = [r for r in rows(sockets_text) if r["fd"] == str(fd)]
        # The program and vma_stats.
        for name in own:
            assert s["tcp"][name] == own[name], name
        assert s["tcp"]["wscale"] == 1 and more["wscales"] == s["tcp"]["snd_wscale"] | s["tcp"]["rcv_wscale"] << 4
        assert more["received"] == RECEIVED == s["rx"]["bytes"] + s["rx_ready_bytes"]
        assert more["acked"] == SENT == s["tx"]["bytes"]
        assert server.do("number(termios.FIONREAD)") == s["rx_ready_bytes"] and server.do("number(termios.TIOCOUTQ)") == s["tx_ready_bytes"]
        # The module's line.
        assert STATES[more["state"]] == s["state"] == text["state"] == "ESTABLISHED"
        assert text["local"] == "%s:%d" % server.do("s.getsockname()") and text["remote"] == "%s:%d" % server.do("s.getpeername()")
        for way in ("rx", "tx"):
            for what in ("packets", "bytes"):
                assert int(text[f"{way}_{what}"]) == s[way][what], (way, what)
        for name in ("rx_drop_packets", "rx_ready_bytes", "tx_ready_bytes", "tx_retransmits"):
            assert int(text[name]) == s[name], name
        assert int(text["tx_retransmits"]) == own["retransmits"]
        # The sums of the process: of the sockets that are open, and of those that are not any more.
        stats, closed = {name: int(n) for name, n in map(str.split, sums_text.splitlines())}, seen["closed_sockets"]
        for way in ("rx", "tx"):
            for what in s[way]:
                assert stats[f"socket_{way}_{what}"] == sum(x[way][what] for x in seen["sockets"]) + closed[way][what], (way, what)
        # The ring.
        (ring,), (line,) = seen["rings"], rows(rings_text)
        assert line["ifname"] == ring["ifname"] and line["type"] == ring["type"]
        counters = [name for name in line if name not in ("ifname", "ifindex", "type")]
        assert len(counters) >= 17
        for name in counters:
            assert int(line[name]) == ring[name], name
            assert stats[f"ring_{name}"] == ring[name] + seen["closed_rings"][name], name
        print({k: line[k] for k in counters}, own, more)
        assert ring["rx_bytes"] > RECEIVED and ring["tx_bytes"] > SENT and ring["retransmits"] == own["retransmits"]
