# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What happens to a thread, or to a number, while the thread waits in a call: the same as with the kernel's sockets."""

import select
import socket
import subprocess

import pytest

PORT = 7502
# What the peer does ("?": it says what it sees), and what the program is let go on by (".").
SCRIPTS = {
    "recv": ["close", "?", ".", "send", ".", "recv", "end"],
    "poll": ["close", "?", ".", "send", ".", "revents", "end"],
    "select": ["close", "?", ".", "send", ".", "select", "end"],
    "poll, nothing comes": ["close", "?", ".", ".", "revents", "end"],
    "epoll": ["close", "end", ".", ".", "epoll_wait"],
    "cancel": ["close", "?", ".", "cancelled", "end", "."],
    "handler ends the thread": ["ended", "?", ".", "close", "end", "."],
    "handler jumps": ["left", "?", ".", "close", "end", "."],
    "handler jumps out of poll": ["left", "send", "recv 4", "?", ".", "close", "end", "."],
    "handler closes": ["ended", "end", ".", "close", "."],
    "handler returns": ["?", ".", "close", "?", "send", "recv", "end", "."],
    "number reused": ["the same number", "?", "other", "send", ".", "the other", "end", "."],
    "fork": ["close", "?", ".", ".", "the child is over", "?", "send", "recv", "end", "."],
}


def seen(peer, patience):
    """What a peer has been told, or is within so many seconds."""
    if not select.select([peer], [], [], patience)[0]:
        return "nothing"
    try:
        return peer.recv(10)
    except ConnectionError as e:
        return type(e).__name__


def run(net, library, preload, what, before=()):
    """What the peer saw, and what the program printed. What was seen the time before is waited for; nothing is not."""
    with net.b.socket(socket.AF_INET, socket.SOCK_STREAM, timeout=20) as lst:
        lst.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lst.bind((net.b.ip4, PORT))
        lst.listen(8)
        p = net.a.popen([library.helpers / "held_calls", what, net.b.ip4, PORT], preload=preload,
                        env={"VMA_TRACELEVEL": "ERROR", "VMA_RX_POLL": "0"}, stdin=subprocess.PIPE)
        peers, saw = [lst.accept()[0]], []
        for step in SCRIPTS[what]:
            if step == ".":
                p.popen.stdin.write(b".")
                p.popen.stdin.flush()
            elif step in ("?", "end"):
                told = len(saw) < len(before) and before[len(saw)][1] != "nothing"
                saw.append((step, seen(peers[0], 20 if told or step == "end" else 0 if before else 0.2)))
            elif step == "send":
                peers[0].sendall(b"late")
            elif step == "other":
                peers.append(lst.accept()[0])
                peers[1].sendall(b"another")
            else:
                p.wait_text(step)
        assert p.wait(30) == 0, p.text
        for peer in peers:
            peer.close()
        return saw, sorted(p.text.splitlines())


@pytest.mark.parametrize("what", SCRIPTS)
def test_a_call_is_inside(unet, library, what):
    kernel = run(unet, library, False, what)
    ours = run(unet, library, True, what, kernel[0])
    print(kernel)
    assert ours == kernel
