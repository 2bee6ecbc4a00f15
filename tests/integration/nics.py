# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The emulated cards of scripts/vm, with the kernel's own drivers: a Net whose wire joins two cards of a kind (scripts/vm_cards.sh).

A card that was moved into a namespace comes back when that goes. Its place on the bus stays, its interface's name does not.
"""

import functools
import os
import pathlib
import re
import subprocess

from netns import Net, ip, wait_for

KINDS = os.environ.get("VM_CARDS", "").split()
DRIVERS = {"virtio": "virtio_net", "virtio4": "virtio_net"}
NET = pathlib.Path("/sys/class/net")


def driver(kind):
    """The name of its module, which is the kernel's of the driver, too."""
    return DRIVERS.get(kind, kind)


class Nic:
    """One card: where it stands on its bus."""

    def __init__(self, interface):
        self.device = (NET / interface / "device").resolve()
        self.driver = (self.device / "driver").resolve()

    @property
    def interface(self):
        """Its name in the initial namespace, None while it is elsewhere or has no driver."""
        there = list(self.device.glob("net/*"))
        return there[0].name if there else None

    def unbind(self):
        (self.driver / "unbind").write_text(self.device.name)

    def bind(self):
        (self.driver / "bind").write_text(self.device.name)


def queues(interface):
    return len(list((NET / interface / "queues").glob("rx-*")))


def order(nic):
    """Of the cards of a driver as they stand on the bus: by numbers, of which a name has several."""
    return [int(n, 16) for n in re.findall(r"[0-9a-f]+", str(nic.device))]


_found = {}


def pair(kind):
    """The two cards of that kind; the driver is loaded when it is wanted first."""
    if kind not in _found:
        subprocess.run(["modprobe", driver(kind)], check=True)

        def there():
            names = [i.name for i in NET.iterdir() if (i / "device/driver").resolve().name == driver(kind)]
            if kind.startswith("virtio"):
                names = [n for n in names if (queues(n) > 1) == (kind == "virtio4")]
            return len(names) == 2 and sorted(map(Nic, names), key=order)

        _found[kind] = wait_for(there, 20, f"two interfaces of {driver(kind)}")
    return _found[kind]


class NicNet(Net):
    """host.nic is the card that the host has."""

    def __init__(self, kind, *args, **options):
        self.kind = kind
        super().__init__(*args, **options)

    def _make(self):
        for host, nic in zip((self.a, self.b), pair(self.kind)):
            host.nic = nic
        super()._make()

    def plug(self, host):
        """The card that is in the initial namespace becomes the host's interface, without an address."""
        there = wait_for(lambda: host.nic.interface, 20, f"the card at {host.nic.device.name} in the first namespace")
        if self.kind == "virtio4":
            # All are in use, as where a host gives one to each processor: the driver makes no more of them for an XDP program.
            subprocess.run(["ethtool", "-L", there, "combined", "4"], check=True)
        ip("link", "set", there, "down", "mtu", self.mtu)
        ip("link", "set", there, "netns", host.name, "name", host.dev)

    def link(self):
        for host in (self.a, self.b):
            self.plug(host)
        self.configure()

    @staticmethod
    def take_programs_off(host):
        """What a killed program has left on the card, which outlives the namespace."""
        for how in ("xdp", "xdpgeneric"):
            subprocess.run(["ip", "-n", host.name, "link", "set", host.dev, how, "off"], stderr=subprocess.DEVNULL)

    def close(self):
        for host in (self.a, self.b):
            host.close()
            self.take_programs_off(host)
        super().close()
        for host in (self.a, self.b):
            if hasattr(host, "nic"):
                wait_for(lambda h=host: h.nic.interface, 20, f"the card at {host.nic.device.name} back")


def kind_of_net(kind):
    """As a class of its own, for the fixtures."""
    return functools.partial(NicNet, kind)
