# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A signal that comes between a thread's last look and its sleep, and signals at any time (signal_gap.c)."""

import signal

import pytest

from netns import interposers

PORT = 7310
ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], %d))
print("bound", flush=True)
while True:
    data, who = s.recvfrom(100)
    s.sendto(data, who)
""" % PORT


@pytest.fixture(scope="module")
def interposer(tmp_path_factory):
    return interposers(tmp_path_factory, "signal_gap") / "signal_gap.so"


def run(net, what, *before, preload=True, **env):
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("bound")
    argv = [net.library.helpers / "signal_gap", what, net.a.ip4, net.b.ip4, PORT]
    text = net.a.run([*before, *argv], preload, env, timeout=200).text
    print(text)
    return text


def test_a_signal_before_the_sleep(unet, interposer):
    """ppoll() raises it before it asks the kernel."""
    preload = " ".join(filter(None, (unet.library.environment()["LD_PRELOAD"], str(interposer))))
    text = run(unet, "gap", "env", f"LD_PRELOAD={preload}", VMA_RX_POLL=0, VMA_SELECT_POLL=0)
    assert "the masks hold" in text


@pytest.mark.parametrize("poll", [0, 20])
def test_signals_at_any_time(unet, poll):
    assert "each handled once" in run(unet, "storm", VMA_RX_POLL=poll, VMA_SELECT_POLL=poll)


def test_what_the_kernel_says_of_the_same(unet):
    assert "each handled once" in run(unet, "kernel", preload=False)


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV"])
@pytest.mark.parametrize("preload", [False, True], ids=["kernel", "ours"])
def test_another_process_sends_what_a_thread_causes_itself(unet, name, preload):
    """It finds the thread inside a call of the library, and the handler makes one, too."""
    text = unet.a.run([unet.library.helpers / "abort_close", int(signal.Signals[name]), 3000], preload, timeout=100).text
    print(f"{name}: {text}")
    assert "3000 signals handled" in text
