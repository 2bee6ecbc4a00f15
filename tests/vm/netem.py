# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Two hosts with a bad line between them. The line is a router's: what an AF_XDP socket sends passes no queueing discipline of
its own host.

    a  [ veth-a 10.77.0.1 ] -- [ 10.77.0.254  router  10.78.0.254 ] -- [ veth-b 10.78.0.2 ]  b
                                 netem towards a      netem towards b
"""

from netns import Net, ip, know, remove_namespace, wait_for


class BadLine(Net):
    """A Net whose hosts' addresses are of two networks; line() says how bad the way is."""

    def _make(self):
        self.router = self.a.name[:-1] + "r"
        self.b.ip4 = "10.78.0.2"
        for name in (self.a.name, self.b.name, self.router):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        for host, network in ((self.a, "10.77.0"), (self.b, "10.78.0")):
            towards = "to-" + host.dev[-1]
            ip("-n", host.name, "link", "add", host.dev, "type", "veth", "peer", "name", towards, "netns", self.router)
            ip("-n", self.router, "addr", "add", f"{network}.254/24", "dev", towards)
            ip("-n", self.router, "link", "set", towards, "up")
            ip("-n", host.name, "addr", "add", f"{host.ip4}/24", "dev", host.dev)
            ip("-n", host.name, "link", "set", host.dev, "up")
            ip("-n", host.name, "route", "add", "default", "via", f"{network}.254")
            wait_for(lambda h=host: " state UP " in ip("-n", h.name, "link", "show", h.dev), what="the line up")
            # ARP has no checksum: an answer that netem damages would be believed for longer than a connection is tried.
            know(host.name, host.dev, f"{network}.254", self.router, towards)
            know(self.router, towards, host.ip4, host.name, host.dev)
        ip("netns", "exec", self.router, "sysctl", "-qw", "net.ipv4.ip_forward=1")

    def line(self, *netem):
        """The words of tc-netem(8), for both directions: line("delay", "10ms", "loss", "1%")."""
        for dev in ("to-a", "to-b"):
            ip("netns", "exec", self.router, "tc", "qdisc", "replace", "dev", dev, "root", "netem", *netem)

    def close(self):
        super().close()
        remove_namespace(self.router)
