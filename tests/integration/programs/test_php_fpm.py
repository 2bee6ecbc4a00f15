# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""php-fpm: static workers, and such as are forked when a connection waits, which the master polls for.
A listener that processes share goes to the kernel (limits.md): what is proved is that no request waits."""

import pytest

from serving import ended, start

REQUEST = ["env", "REQUEST_METHOD=GET", "QUERY_STRING="]


@pytest.mark.parametrize("pm", ["pm = static\npm.max_children = 2", "pm = ondemand\npm.max_children = 2\npm.process_idle_timeout = 1s"],
                         ids=["static", "ondemand"])
def test_scripts(net, pm):
    script = net.tmp / "script.php"
    script.write_text("<?php echo strtoupper('answer'), str_repeat('x', 500000);")
    conf = net.tmp / "conf"
    conf.write_text(f"[global]\nerror_log = {net.tmp}/log\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = {net.a.ip4}:9000\n{pm}\n")
    server = start(net, ["php-fpm8.2", "-R", "-n", "-F", "-y", conf])
    net.a.wait_bound(9000, "tcp")
    for _ in range(10):
        text = net.b.run([*REQUEST, f"SCRIPT_FILENAME={script}", "cgi-fcgi", "-bind", "-connect", f"{net.a.ip4}:9000"]).text
        assert "ANSWER" + "x" * 500000 in text, text[:500]
    ended(server, 3)
