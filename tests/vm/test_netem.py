# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""TCP over a line that the kernel's netem makes bad, with the kernel's own TCP at one end at least."""

import pytest

from netem import BadLine

RECEIVER = """
import hashlib, socket
l = socket.create_server(("0.0.0.0", 7200))
s, _ = l.accept()
h = hashlib.sha256()
while d := s.recv(65536): h.update(d)
s.sendall(h.hexdigest().encode())
s.close()
"""
SENDER = """
import hashlib, random, socket, sys
s = socket.create_connection((sys.argv[1], 7200))
data = random.Random(int(sys.argv[2])).randbytes(int(sys.argv[2]))
s.sendall(data)
s.shutdown(socket.SHUT_WR)
told = b""
while d := s.recv(100): told += d
assert told.decode() == hashlib.sha256(data).hexdigest(), told
"""


@pytest.fixture
def bad_line(library, tmp_path):
    net = BadLine(library, tmp_path)
    yield net
    net.close()


@pytest.mark.parametrize("ours", ["receiver", "sender", "both"])
def test_a_stream_comes_whole_through_loss_reordering_and_duplicates(bad_line, ours):
    bad_line.line("delay", "10ms", "3ms", "loss", "3%", "duplicate", "1%", "reorder", "5%", "corrupt", "0.5%")
    receiver = bad_line.a.python(RECEIVER, ours != "sender", env={"VMA_TRACELEVEL": "WARN"})
    bad_line.a.wait_bound(7200, "tcp")
    sender = bad_line.b.python(SENDER, ours != "receiver", (bad_line.a.ip4, "1000000"), env={"VMA_TRACELEVEL": "WARN"})
    assert sender.wait(60) == 0, sender.text
    assert receiver.wait(60) == 0, receiver.text
