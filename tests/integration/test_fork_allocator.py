# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""fork() with an allocator that is locked around it (fork_allocator.c): the library asks it for nothing then."""

import pytest

from netns import interposers

# AddressSanitizer is the allocator.
pytestmark = pytest.mark.no_asan


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    return str(interposers(tmp_path_factory, "fork_allocator") / "fork_allocator.so")


def forks(net, *before):
    """In each way, and the children send; before: what env(1) is told."""
    net.neighbours(v6=False)
    done = net.a.run(["env", *before, net.library.helpers / "fork_allocator", net.b.ip4, 7000], preload=True, timeout=150, check=False)
    print(done.text)
    assert "all children have ended" in done.text


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("registers", ["start", "first"])
def test_an_allocator_with_handlers_of_its_own(net, allocator, registers, place):
    ours = net.library.environment()["LD_PRELOAD"]
    preload = f"{allocator} {ours}" if place == "before" else f"{ours} {allocator}"
    forks(net, f"LD_PRELOAD={preload}", f"FORK_ALLOCATOR={registers}")


def test_jemalloc(net):
    forks(net, f"LD_PRELOAD=libjemalloc.so.2 {net.library.environment()['LD_PRELOAD']}")
