# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stands on top of a card: each function makes on the two hosts of a Net an interface `over` (or leaves theirs), with A and B.

The Net is the test's own: what they change nobody changes back.
"""

from netns import ip, know, wait_for

A, B = "10.78.0.1", "10.78.0.2"

# An interface of its own, whose frames go to the peer's in datagrams of a kernel socket: what a VPN's program does.
TUNNEL = """
import fcntl, os, select, socket, struct, sys
tap = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack("16sH22x", b"over", 0x1002))  # TUNSETIFF: IFF_TAP, IFF_NO_PI
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 4789))
s.connect((sys.argv[2], 4789))
print("there", flush=True)
while True:
    for f in select.select([tap, s], [], [])[0]:
        try:
            if f == tap:
                s.send(os.read(tap, 65536))
            else:
                os.write(tap, s.recv(65536))
        except ConnectionRefusedError:
            pass
"""


def up(net, dev_a="over", dev_b="over"):
    """The hosts' interfaces of those names get A and B; each knows the other one's address."""
    ends = [(net.a, dev_a, A), (net.b, dev_b, B)]
    for host, dev, address in ends:
        ip("-n", host.name, "addr", "add", f"{address}/24", "dev", dev)
        ip("-n", host.name, "link", "set", dev, "up")
    for (host, dev, _), (peer, peer_dev, address) in zip(ends, reversed(ends)):
        wait_for(lambda h=host, d=dev: "LOWER_UP" in ip("-n", h.name, "link", "show", d), 10, "the interfaces up")
        know(host.name, dev, address, peer.name, peer_dev)


def vlan(net):
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "add", "link", host.dev, "name", "over", "type", "vlan", "id", "5")
    up(net)


def macvlan(net):
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "add", "link", host.dev, "name", "over", "type", "macvlan", "mode", "bridge")
    up(net)


def bond_of(net, mode):
    """Of the wire's ends alone."""
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "add", "over", "type", "bond", "mode", mode, "miimon", "100")
        ip("-n", host.name, "link", "set", host.dev, "down")
        ip("-n", host.name, "link", "set", host.dev, "master", "over")
        ip("-n", host.name, "link", "set", host.dev, "up")
    up(net)


def bond(net):
    bond_of(net, "active-backup")


def bond_lacp(net):
    bond_of(net, "802.3ad")


def bridge(net):
    for host in (net.a, net.b):
        ip("-n", host.name, "link", "add", "over", "type", "bridge")
        ip("-n", host.name, "link", "set", host.dev, "master", "over")
    up(net)
    # The port learns before it forwards.
    for host in (net.a, net.b):
        wait_for(lambda h=host: "state forwarding" in ip("-n", h.name, "-d", "link", "show", h.dev), 60, "the bridge forwards")


def vrf(net):
    """The server's interface is in one; its sockets belong to all (l3mdev_accept)."""
    ip("-n", net.a.name, "link", "add", "over", "type", "vrf", "table", "10")
    ip("-n", net.a.name, "link", "set", "over", "up")
    ip("-n", net.a.name, "link", "set", net.a.dev, "master", "over")
    for name in ("tcp", "udp"):
        net.a.run(["sysctl", "-qw", f"net.ipv4.{name}_l3mdev_accept=1"])
    up(net, net.a.dev, net.b.dev)


def tap(net):
    for host, peer in ((net.a, net.b), (net.b, net.a)):
        host.python(TUNNEL, args=[host.ip4, peer.ip4]).wait_text("^there$")
        ip("-n", host.name, "link", "set", "over", "mtu", "1400")
    up(net)


ALL = [vlan, macvlan, bond, bond_lacp, bridge, vrf, tap]
