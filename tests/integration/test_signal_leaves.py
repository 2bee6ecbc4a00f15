# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A handler that has waited for a lock and leaves by siglongjmp() (signal_leaves.c)."""

import pytest

from netns import interposers


@pytest.fixture(scope="module")
def interposer(tmp_path_factory):
    return interposers(tmp_path_factory, "signal_leaves") / "signal_leaves.so"


@pytest.mark.parametrize("call", ["setsockopt", "getsockopt", "epoll_ctl", "dup"])
def test_a_thread_whose_handler_leaves_can_be_cancelled(unet, interposer, call):
    """The signal comes in that call of libc's: under a TCP socket's lock, a UDP socket's, a set's, the table's."""
    preload = " ".join(filter(None, (unet.library.environment()["LD_PRELOAD"], str(interposer))))
    p = unet.a.run(["env", f"LD_PRELOAD={preload}", unet.library.helpers / "signal_leaves", call], True, {}, check=False)
    print(p.text)
    assert "it can be cancelled" in p.text
