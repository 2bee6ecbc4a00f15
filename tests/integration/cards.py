# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The mlx5 device in software (tests/mlx5_device), in the guest of scripts/vm: a Net whose wire joins two cards of it.

A card that was moved into a namespace comes back when that goes. Its number stays, its interface's name does not.
"""

import ctypes
import os
import pathlib
import subprocess

from netns import ROOT, Net, ip, wait_for

PAIRS = 4
SYS_FINIT_MODULE, SYS_DELETE_MODULE = 313, 176
LIBC = ctypes.CDLL(None, use_errno=True)


def load(**parameters):
    """Loads the module unless it is; for rmmod() later."""
    if pathlib.Path("/sys/module/mlx5_device").exists():
        return
    ko = pathlib.Path("/tmp/mlx5_device.ko")
    if not ko.exists():  # without its debugging information: an emulated processor reads that for long
        subprocess.run(["objcopy", "-g", ROOT / "tests" / "mlx5_device" / "module" / "mlx5_device.ko", ko], check=True)
    subprocess.run(["modprobe", "ib_uverbs"], check=True)
    text = " ".join(f"{name}={value}" for name, value in {"pairs": PAIRS, **parameters}.items())
    with open(ko, "rb") as f:
        if LIBC.syscall(SYS_FINIT_MODULE, f.fileno(), text.encode(), 0):
            raise OSError(ctypes.get_errno(), "insmod mlx5_device.ko")


def unload():
    """Once the last file of those that were killed is closed."""
    wait_for(lambda: LIBC.syscall(SYS_DELETE_MODULE, b"mlx5_device", os.O_NONBLOCK) == 0, what="mlx5_device unloaded")


class Card:
    def __init__(self, number):
        self.number = number
        self.files = pathlib.Path(f"/sys/kernel/debug/mlx5_device/mlx{number}")

    def __getitem__(self, name):
        """A counter, or what is broken."""
        return int((self.files / name).read_text())

    def __setitem__(self, name, value):
        (self.files / name).write_text(str(value))

    @property
    def interface(self):
        """Its name in the initial namespace, None while it is elsewhere."""
        there = list(pathlib.Path(f"/sys/devices/platform/mlx5_device.{self.number}/net").glob("*"))
        return there[0].name if there else None


class CardNet(Net):
    """host.card is the card that the host has. Its complaints are the test's failure."""

    used = set()

    def _make(self):
        load()
        self.pair = wait_for(self._free_pair, 20, "a free pair of cards")
        self.used.add(self.pair)
        for i, host in enumerate((self.a, self.b)):
            host.card = Card(2 * self.pair - 2 + i)
        self.complaints = [host.card["complaints"] for host in (self.a, self.b)]
        super()._make()

    def _free_pair(self):
        """From 1."""
        for pair in range(1, PAIRS + 1):
            if pair not in self.used and Card(2 * pair - 2).interface and Card(2 * pair - 1).interface:
                return pair
        return None

    def link(self):
        for host in (self.a, self.b):
            there = wait_for(lambda h=host: h.card.interface, 20, "the card is back")
            ip("link", "set", there, "down", "mtu", self.mtu)
            ip("link", "set", there, "netns", host.name, "name", host.dev)
        self.configure()

    def close(self):
        super().close()
        if hasattr(self, "pair"):
            self.used.discard(self.pair)

    def complained(self):
        """How often either card did since this Net was made."""
        return sum(host.card["complaints"] - before for host, before in zip((self.a, self.b), self.complaints))
