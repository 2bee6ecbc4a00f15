# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
chrony: a server that only serves, and a client that asks once. With the time stamps of what it sends its socket is the kernel's:
what is proved is that they work. With Debian's own settings it gives itself a seccomp filter (-F 1), which would end it by a call of the
library's; that of -F 2 lets those.
"""

import pytest

from serving import OURS, ended, start


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_time(net, level):
    conf = net.tmp / "conf"
    conf.write_text(f"local stratum 3\nallow all\nport 1123\nbindaddress {net.a.ip4}\ncmdport 0\nbindcmdaddress /\npidfile {net.tmp}/pid\n")
    server = start(net, ["chronyd", "-d", "-x", "-u", "root", "-F", str(level), "-f", conf], 1123, "udp",
                   env={"TEST_EXITS": ""})  # exits.c makes calls, too
    ask = ["chronyd", "-Q", "-t", "10", "-u", "root", f"server {net.a.ip4} port 1123 iburst maxsamples 1", f"pidfile {net.tmp}/pid2", "cmdport 0",
           "bindcmdaddress /"]
    for _ in range(3):
        assert "System clock wrong by" in net.b.run(ask).text
    assert ("nothing is offloaded in this process any more" in server.text) == (level == 1 and OURS), server.text
    ended(server)
