# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fork() with an allocator that is locked around it (fork_allocator.c): the library asks it for nothing then."""

import pytest

from netns import interposers

# AddressSanitizer is the allocator.
pytestmark = pytest.mark.no_asan


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    return str(interposers(tmp_path_factory, "fork_allocator") / "fork_allocator.so")


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("registers", ["start", "first"])
def test_an_allocator_with_handlers_of_its_own(net, allocator, registers, place):
    net.neighbours(v6=False)
    ours = net.library.environment()["LD_PRELOAD"]
    preload = f"{allocator} {ours}" if place == "before" else f"{ours} {allocator}"
    done = net.a.run(["env", f"LD_PRELOAD={preload}", f"FORK_ALLOCATOR={registers}", net.library.helpers / "fork_allocator", net.b.ip4, 7000],
                     preload=True, timeout=150, check=False)
    print(done.text)
    assert "all children have ended" in done.text


def test_jemalloc(net):
    net.neighbours(v6=False)
    preload = f"libjemalloc.so.2 {net.library.environment()['LD_PRELOAD']}"
    done = net.a.run(["env", f"LD_PRELOAD={preload}", net.library.helpers / "fork_allocator", net.b.ip4, 7000],
                     preload=True, timeout=150, check=False)
    print(done.text)
    assert "all children have ended" in done.text
