# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A thread that never comes back from inside the library, where signals are put off (stuck_thread.c)."""

import signal

import pytest

from netns import interposers


@pytest.fixture(scope="module")
def stuck(tmp_path_factory):
    return interposers(tmp_path_factory, "stuck_thread") / "stuck_thread.so"


@pytest.mark.parametrize("how", ["SIGALRM", "SIGTERM", "SIGRTMIN"])
def test_a_signal_that_nobody_catches_ends_the_process(net, stuck, how):
    preload = " ".join(filter(None, (net.library.environment()["LD_PRELOAD"], str(stuck))))
    alarm = ["alarm"] if how == "SIGALRM" else []
    app = net.a.popen(["env", f"LD_PRELOAD={preload}", net.library.helpers / "stuck_thread", net.a.ip4, 7320, *alarm], preload=True)
    app.wait_text("stuck")
    if not alarm:
        app.kill(getattr(signal, how))
    assert app.wait() == -getattr(signal, how), app.text
