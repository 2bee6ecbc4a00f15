# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vsftpd: a process for each session, made by clone() with namespaces; data connections both ways. A clone() leaves the
sockets to the kernel (limits.md): what is proved is that all of it works."""

from serving import document, ended, fetched, start


def test_sessions(net):
    data = document(net)
    conf = net.tmp / "conf"
    conf.write_text(f"listen=YES\nlisten_address={net.a.ip4}\nlisten_port=2121\nbackground=NO\nanonymous_enable=YES\nanon_root={net.tmp}/www\n"
                    f"secure_chroot_dir={net.tmp}/www\nno_anon_password=YES\nrun_as_launching_user=NO\nseccomp_sandbox=NO\n")
    (net.tmp / "www").chmod(0o755)
    server = start(net, ["vsftpd", conf])
    net.a.wait_bound(2121, "tcp")
    for options in ([], ["--disable-epsv"], ["--ftp-port", "-"]):
        assert fetched(net, f"ftp://{net.a.ip4}:2121/file", *options) == data
    ended(server, status=-15)
