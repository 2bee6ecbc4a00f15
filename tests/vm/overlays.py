# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What stands on top of a card: each function makes on the two hosts of a Net an interface `over`, with A and B.

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
        except OSError:  # the other end is not there yet, or not up
            pass
"""


def up(net):
    """The hosts' interfaces of that name get A and B; each knows the other one's address."""
    for host, address in ((net.a, A), (net.b, B)):
        ip("-n", host.name, "addr", "add", f"{address}/24", "dev", "over")
        ip("-n", host.name, "link", "set", "over", "up")
    for host, peer, address in ((net.a, net.b, B), (net.b, net.a, A)):
        wait_for(lambda h=host: "LOWER_UP" in ip("-n", h.name, "link", "show", "over"), 10, "the interfaces up")
        know(host.name, "over", address, peer.name, "over")


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


def tap(net):
    for host, peer in ((net.a, net.b), (net.b, net.a)):
        host.python(TUNNEL, args=[host.ip4, peer.ip4]).wait_text("^there$")
        ip("-n", host.name, "link", "set", "over", "mtu", "1400")
    up(net)


ALL = [vlan, macvlan, bond, bond_lacp, bridge, tap]
