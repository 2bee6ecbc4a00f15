# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""pthread_cancel(): a thread that is cancelled in a call leaves nothing taken, and is cancelled where the kernel's would be."""

import subprocess

import pytest

from netns import ROOT

UDP_PORT, TCP_PORT = 7401, 7402

ECHO = """
import socket, sys, threading

def echo(c):
    try:
        while data := c.recv(4000):
            c.sendall(data)
    except OSError:
        pass
    c.close()

def serve():
    while True:
        threading.Thread(target=echo, args=(lst.accept()[0],), daemon=True).start()

lst = socket.create_server((sys.argv[1], %d))
threading.Thread(target=serve, daemon=True).start()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind((sys.argv[1], %d))
print("ready", flush=True)
while True:
    data, who = u.recvfrom(4000)
    u.sendto(data, who)
""" % (TCP_PORT, UDP_PORT)


def run(net, library, preload, *args, env=None):
    net.b.python(ECHO, args=(net.b.ip4,)).wait_text("ready")
    argv = [library.helpers / "cancel_points", args[0], net.a.ip4, net.b.ip4, UDP_PORT, TCP_PORT, *args[1:]]
    done = net.a.run(argv, preload=preload, env={"VMA_TRACELEVEL": "ERROR", **(env or {})}, check=False, timeout=60)
    print(done.text)
    assert done.popen.returncode == 0
    return done.text


def test_a_pending_cancellation_ends_the_calls_that_it_ends_with_kernel_sockets(net, library):
    assert run(net, library, True, "pending") == run(net, library, False, "pending")


@pytest.mark.parametrize("poll", [None, "-1", "0"])
def test_a_call_that_waits_for_ever_is_cancelled_asleep_and_spinning(net, library, poll):
    if library.sanitize:
        return  # what ASan writes around the frames that a cancellation skips stays (tests/unit/test_iomux_races.c)
    env = poll and {"VMA_RX_POLL": poll, "VMA_SELECT_POLL": poll}
    assert run(net, library, True, "waiting", env=env) == run(net, library, False, "waiting")


def test_threads_that_are_cancelled_anywhere_leave_nothing_taken(net, library):
    count = 30 if library.sanitize else 150
    assert f"{count} threads cancelled" in run(net, library, True, "races", count)


# --- scripts/cancel_points on a tree of its own

LISTED = "# comment\ncall lib/room/a.c: recv\nsymbol lib/room/a.c: usleep\n"
CLEAN = """
#include <unistd.h>
struct table { long (*recv)(int fd); long (*close)(int fd); };
extern struct table libc, raw;
long room(int fd);
long room(int fd) { usleep(1); raw.close(fd); /* libc.close(fd) */ return libc.recv(fd); }
"""


def cancel_points(tree, source, listed=LISTED):
    (tree / "lib/room").mkdir(parents=True)
    (tree / "build/obj/lib/room").mkdir(parents=True)
    (tree / "lib/room/a.c").write_text(source)
    (tree / "lib/cancel.txt").write_text(listed)
    subprocess.run(["gcc", "-c", "-o", tree / "build/obj/lib/room/a.o", tree / "lib/room/a.c"], check=True)
    done = subprocess.run([ROOT / "scripts/cancel_points", tree / "build", tree], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_known_cancellation_points_pass(tmp_path):
    assert cancel_points(tmp_path, CLEAN) == (0, "cancel_points: 2 in 2 places, all known\n")


@pytest.mark.parametrize("change, said", [
    (("raw.close", "libc.close"), "lib/room/a.c: close() is a cancellation point: raw.close(), or"),
    (("raw.close(fd)", "(void)!read(fd, &fd, 1)"), "lib/room/a.c: read() is a cancellation point: a bare system call"),
    (("usleep(1);", ""), "lib/cancel.txt: symbol lib/room/a.c: usleep is not there any more"),
])
def test_a_new_cancellation_point_or_a_line_in_vain_is_refused(tmp_path, change, said):
    code, text = cancel_points(tmp_path, CLEAN.replace(*change))
    assert code == 1 and said in text, text
