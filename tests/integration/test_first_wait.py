# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The first call that waits opens the interface's ring, which takes a while: what comes meanwhile ends it all the same.

    net.a  a program whose timer goes off while it waits for the first time [ veth-a ] ---- [ veth-b ]  net.b
"""

import pytest

PROGRAM = """
import select, signal, socket, sys
how, me, nobody = sys.argv[1:]
class Came(Exception): pass
def handler(*_):
    raise Came
signal.signal(signal.SIGALRM, handler)
if how == "accept":
    wait = socket.create_server((me, 7001)).accept
elif how == "connect":
    c = socket.socket()
    wait = lambda: c.connect((nobody, 7002))
else:
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind((me, 7000))
    p = select.poll()
    p.register(u, select.POLLIN)
    wait = {"recv": lambda: u.recv(100), "poll": p.poll, "select": lambda: select.select([u], [], [])}[how]
# Opening the ring takes ten times as long.
try:
    signal.setitimer(signal.ITIMER_REAL, 0.004)
    wait()
except Came:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "kernel"])
@pytest.mark.parametrize("how", ["recv", "accept", "connect", "poll", "select"])
def test_a_handler_that_runs_meanwhile_ends_it(net, how, ours):
    net.neighbours(v6=False)
    nobody = net.a.ip4.rsplit(".", 1)[0] + ".99"
    net.a.run(["ip", "neigh", "replace", nobody, "lladdr", "02:00:00:00:00:99", "dev", net.a.dev, "nud", "permanent"])
    net.a.python(PROGRAM, ours, [how, net.a.ip4, nobody]).wait_text("^interrupted$", 20)
