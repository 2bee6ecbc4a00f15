# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""BBR beside the kernel's BBR, one stream over the same narrow wire that loses frames: docs/tcp-loss.md has the table."""

import sys

import pytest

from netns import ROOT, LossyNet

sys.path.insert(0, str(ROOT / "tests" / "bench"))

import loss  # noqa: E402 (the path is made above)


@pytest.fixture
def lossy(library, tmp_path):
    net = LossyNet(library, tmp_path)
    yield net
    net.close()


@pytest.mark.alone
@pytest.mark.no_sanitize
def test_goodput_is_that_of_the_kernel_s(lossy):
    """Which frames are lost comes from the seed, the same for each; they take turns. CUBIC shows what the losses would cost."""
    sides = {"the kernel's BBR": (False, "bbr"), "our BBR": (True, "bbr"), "our CUBIC": (True, "cubic")}
    total = dict.fromkeys(sides, 0)
    for seed in (1, 2):
        for name, (ours, control) in sides.items():
            mbit = loss.goodput(lossy, 20, 2, seed, 2, ours, ours, streams=1, control=control, mbit=loss.BBR_MBIT)
            print(f"{name}, seed {seed}: {mbit:.1f} of {loss.BBR_MBIT} Mbit/s")
            total[name] += mbit
    assert total["our BBR"] > 0.7 * total["the kernel's BBR"]
    assert total["our BBR"] > 1.5 * total["our CUBIC"]
