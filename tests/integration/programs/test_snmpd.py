# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""snmpd: select(); answers with IP_PKTINFO, which the kernel sends."""

from serving import ended, start


def test_a_walk(net):
    conf = net.tmp / "conf"
    conf.write_text("rocommunity public\nsysLocation here\n")
    command = ["env", f"SNMP_PERSISTENT_DIR={net.tmp}", "snmpd", "-f", "-C", "-c", conf, "-Lf", net.tmp / "log", f"udp:{net.a.ip4}:1161"]
    server = start(net, command, 1161, "udp")
    at = ["-v2c", "-c", "public", "-On", "-t", "5", f"{net.a.ip4}:1161"]
    net.b.run(["snmpget", *at, ".1.3.6.1.2.1.1.6.0"])
    net.neighbours()
    before = net.a.counters()["UdpInDatagrams"]
    for _ in range(20):
        assert '"here"' in net.b.run(["snmpget", *at, ".1.3.6.1.2.1.1.6.0"]).text.replace("STRING: here", 'STRING: "here"')
    assert net.b.run(["snmpwalk", *at, ".1.3.6.1.2.1.1"]).text.count("\n") > 5
    assert net.a.counters()["UdpInDatagrams"] - before <= 2
    ended(server)
