# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
rsync's daemon, a process for each client, and rsync as the client with the library, which receives in a child. What a child uses
goes to the kernel (limits.md): what is proved is that the daemon's listener is served here, and that all of it arrives.
"""

from serving import OURS, document, start


def test_daemon_and_client(net):
    data = document(net)
    conf = net.tmp / "conf"
    conf.write_text(f"use chroot = no\n[m]\npath = {net.tmp}/www\nuid = root\n")

    def argv(host):
        return ["rsync", "--daemon", "--no-detach", f"--config={conf}", "--port", "8730", "--address", host.ip4, f"--log-file={net.tmp}/log"]

    def get(host, server, **options):
        (net.tmp / "got").unlink(missing_ok=True)
        host.run(["rsync", f"rsync://{server.ip4}:8730/m/file", net.tmp / "got"], **options)
        assert (net.tmp / "got").read_bytes() == data

    start(net, argv(net.a), 8730)
    for _ in range(3):
        get(net.b, net.a)
    net.b.popen(argv(net.b))
    net.b.wait_bound(8730, "tcp")
    get(net.a, net.b, preload=OURS)
