# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
squid: a proxy between curl and a server. It gives capabilities away before it listens, and so it stays with the kernel; then it
changes its groups, in all threads. What is proved is that it lives.
"""

import os

from serving import document, ended, fetched, start


def test_proxy(net):
    data = document(net)
    net.b.popen(["/usr/bin/python3", "-m", "http.server", "-b", net.b.ip4, "-d", net.tmp / "www", 8081])
    net.b.wait_bound(8081, "tcp")
    conf = net.tmp / "conf"
    conf.write_text(f"http_port {net.a.ip4}:3128\nhttp_access allow all\ncache deny all\npid_filename none\npinger_enable off\n"
                    f"access_log none\ncache_log /dev/null\nshutdown_lifetime 0 seconds\n"
                    f"coredump_dir {net.tmp}\nvisible_hostname here\ndns_nameservers 127.0.0.1\n")
    server = start(net, ["squid", "-N", "-n", f"vma{os.getpid()}", "-f", conf])
    net.a.wait_bound(3128, "tcp")
    for _ in range(3):
        assert fetched(net, f"http://{net.b.ip4}:8081/file", "-x", f"http://{net.a.ip4}:3128") == data
    ended(server)
