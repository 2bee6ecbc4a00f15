# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""mosquitto: one broker, subscribers and publishers."""

from serving import ended, no_kernel_connections, start


def test_messages(net):
    conf = net.tmp / "conf"
    conf.write_text(f"listener 1883 {net.a.ip4}\nallow_anonymous true\nuser root\n")
    server = start(net, ["/usr/sbin/mosquitto", "-c", conf], 1883)
    at = ["-h", net.a.ip4, "-q", "1"]
    with no_kernel_connections(net.a, 500):
        hears = [net.b.popen(["stdbuf", "-oL", "mosquitto_sub", *at, "-d", "-t", "t/#", "-C", "50"]) for _ in range(3)]
        for sub in hears:
            sub.wait_text("received SUBACK")
        lines = net.tmp / "lines"
        lines.write_text("".join(f"message {n} {'x' * 2000}\n" for n in range(50)))
        with open(lines) as stdin:
            net.b.run(["mosquitto_pub", *at, "-t", "t/one", "-l"], stdin=stdin)
        for sub in hears:
            assert sub.wait() == 0
            assert [f"message {n} x" in sub.text for n in range(50)] == [True] * 50
    ended(server)
