# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Messages to and fro between programs that sleep for each one: a notify that comes before its state can be seen shows as a
sleep that does not end. scripts/test.sh runs this with the build of CHECK_LOCKS=1, too, whose threads lose their CPU there.
"""

import pytest

PORT = 7300
ROUNDS = 600


@pytest.mark.parametrize("poll", [0, 1000])
@pytest.mark.parametrize("proto", ["tcp", "udp"])
def test_nobody_sleeps_over_a_message(net, proto, poll):
    env = {"VMA_RX_POLL": poll, "VMA_SELECT_POLL": poll}
    program = net.library.helpers / "wakeups"
    server = net.a.popen([program, "serve", proto, net.a.ip4, PORT], True, env)
    server.wait_text("ready")
    done = net.b.run([program, "ask", proto, net.a.ip4, PORT, ROUNDS], True, env, timeout=120)
    assert "nobody slept too long" in done.text
