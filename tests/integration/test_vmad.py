# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""vmad, a process without sockets that keeps the queues of an interface: tools/vmad, docs/vmad.8.

    net.a  vmad, programs [ veth-a ] ---- [ veth-b ]  kernel sockets of the test  net.b
"""

import contextlib
import os
import pathlib
import re

import pytest

from differential import App
from netns import PATIENCE, flow_table, ip, proc, wait_for
from test_members import look_at

QUIET = {"VMA_TRACELEVEL": "WARN"}


@contextlib.contextmanager
def vmad(net, *options, preload=False):
    """In the foreground; it has the queues."""
    p = net.a.popen([net.library.build / "vmad", "--console", *options], preload)
    p.wait_text("keeps the queues of")
    try:
        yield p
    finally:
        assert p.stop() == 0, p.text


def has_program(net, dev):
    return "xdp" in ip("-n", net.a.name, "link", "show", dev)


def in_background(net):
    """Its processes in this namespace: other tests have theirs."""
    argv = f"{net.library.build}/vmad\0{net.a.dev}\0"
    return [int(pid) for pid in ip("netns", "pids", net.a.name).split() if proc(pid, "cmdline") == argv]


def test_programs_join_it_and_the_queues_stay(net):
    net.neighbours(v6=False)
    with vmad(net, net.a.dev) as p:
        for round_ in range(2):
            with App(net.a, True, env=QUIET) as app, net.b.socket() as peer:
                app.do("s = udp(7000)")
                peer.sendto(b"there", (net.a.ip4, 7000))
                assert app.do("s.recv(100)") == b"there"
                joined = wait_for(lambda: look_at(net, p.pid).get("members") == 2, 10, "the program is a member")
            wait_for(lambda: look_at(net, p.pid).get("members") == 1, 10, "it has left")
            assert has_program(net, net.a.dev)
        print(f"two programs, one after the other: each was a member beside vmad ({joined})")
        assert not net.a.run(["ss", "-Htunlp"]).text, "it has sockets"
        who = net.a.run([net.library.vma_stats, "-v", "6"]).text
        assert re.search(rf"^{net.a.dev} .*\b{p.pid}/vmad$", who, re.M), who
    assert not has_program(net, net.a.dev)


def test_it_is_not_served_by_the_library_that_is_preloaded(net):
    """It has the library's parts itself: two of them would take each other's place in what vma_stats sees."""
    with vmad(net, net.a.dev, preload=True) as p:
        who = net.a.run([net.library.vma_stats, "-k", net.tmp, "-v", "6"]).text
        assert re.search(rf"^{net.a.dev} .*\b{p.pid}/vmad$", who, re.M), who
        workers = [proc(f"{p.pid}/task/{t}", "comm") for t in os.listdir(f"/proc/{p.pid}/task")]
        print(workers)
        assert len([w for w in workers if w.strip() == "vma-worker"]) == 1


@pytest.mark.parametrize("ours", [False, True], ids=["kernel", "ours"])
def test_the_peer_of_a_killed_program_is_reset(net, ours):
    """Without it the peer of the only program would never hear."""
    net.neighbours(v6=False)
    with vmad(net, net.a.dev), App(net.b, ours, env=QUIET) as peer:
        app = App(net.a, True, env=QUIET)
        with app.popen.stdin, app.popen.stdout:
            app.do("u = udp(7001); u.setblocking(False)")
            with net.b.socket() as first:  # by the queues from here on
                def comes():
                    first.sendto(b"x", (net.a.ip4, 7001))
                    return app.ask("u.recv(10)") == b"x"
                wait_for(comes, 10, "a datagram")
            app.do("l = socket.create_server((ME, 7002))")
            app.start("s = l.accept()[0]")
            wait_for(lambda: any(e["formatted"]["key"]["local_port"] == 7002 for e in flow_table(app.pid) or []), 10, "the listener's flow")
            peer.do(f"c = socket.create_connection(({net.a.ip4!r}, 7002)); c.settimeout({20 * PATIENCE})")
            app.answer()
            peer.do("c.sendall(b'a question')")
            assert app.do("s.recv(100)") == b"a question"
            assert net.a.counters()["TcpPassiveOpens"] == 0, "it was not offloaded"
            app.popen.kill()
            app.popen.wait()
            told = peer.ask("c.recv(1)", 30)
            print(f"who waits for the answer is told: {told}")
            assert told == ("OSError", "ECONNRESET")


def test_an_interface_that_comes_back(net):
    """Its queues are opened again; another one's stay as they are."""
    def make():
        ip("-n", net.a.name, "link", "add", "vmad0", "type", "veth", "peer", "name", "vmad1")
        ip("-n", net.a.name, "link", "set", "vmad1", "up")
        ip("-n", net.a.name, "link", "set", "vmad0", "up")

    make()
    wait_for(lambda: "state UP" in ip("-n", net.a.name, "link", "show", "vmad0"), 10, "the interface")
    with vmad(net, "vmad0", net.a.dev) as p:
        wait_for(lambda: has_program(net, "vmad0") and has_program(net, net.a.dev), 10, "both")
        ip("-n", net.a.name, "link", "del", "vmad0")
        p.wait_text("vmad0 has gone")
        make()
        wait_for(lambda: has_program(net, "vmad0"), 20, "its queues again")
        wait_for(lambda: p.text.count("keeps the queues of vmad0") == 2, 20, "it says so")
        assert p.text.count(f"keeps the queues of {net.a.dev}") == 1
    assert not has_program(net, "vmad0")
    ip("-n", net.a.name, "link", "del", "vmad0")


def test_in_the_background(net):
    """Who starts it goes on when the queues are there."""
    start = net.a.run([net.library.build / "vmad", net.a.dev], env=QUIET)
    assert has_program(net, net.a.dev), start.text
    pids = in_background(net)
    print(f"vmad is process {pids}")
    assert len(pids) == 1
    net.a.run(["kill", pids[0]])
    wait_for(lambda: not has_program(net, net.a.dev), 10, "its end")


@pytest.mark.parametrize("argv, says, status", [
    ([], "no interface is named", 2),
    (["--wrong"], "unrecognized option", 2),
    (["--console", "absent0"], "there is no interface absent0", 1),
    (["absent0"], "there is no interface absent0", 1),
    (["--console", "lo"], "the queues of lo cannot be had", 1),
    (["--help"], "Usage: vmad", 0),
    (["--version"], "^vmad [0-9.]+", 0)])
def test_what_it_says(net, argv, says, status):
    p = net.a.run([net.library.build / "vmad", *argv], check=False)
    print(p.text)
    assert re.search(says, p.text, re.M)
    assert p.wait() == status


def test_what_only_the_original_has_is_taken(net):
    with vmad(net, "-p", "499", "-f", "65599", "-r", "1000", "--force-rst", "--notify-dir", "/tmp/vma", "--verbose", "INFO", net.a.dev) as p:
        for name in ("pid", "fid", "retry-interval", "force-rst", "notify-dir"):
            assert f"vmad: --{name} changes nothing here" in p.text


def test_without_rights(net):
    p = net.a.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", net.library.build / "vmad", "--console", net.a.dev],
                  check=False)
    print(p.text)
    assert p.wait() == 1
    assert f"the queues of {net.a.dev} cannot be had" in p.text


@pytest.mark.parametrize("how", [["--console"], []], ids=["console", "background"])
@pytest.mark.parametrize("env", [{"VMA_RING_ALLOCATION_LOGIC_RX": 20}], ids=["several rings of a process"])
def test_where_queues_cannot_be_shared_it_refuses(net, env, how):
    """Else the programs, of which one would have them, all stayed with the kernel. By a status of its own: systemd does not start it again."""
    p = net.a.run([net.library.build / "vmad", *how, net.a.dev], env=env, check=False)
    print(p.text)
    assert p.wait() == 3 and f"the queues of {net.a.dev} cannot be shared here" in p.text
    assert not has_program(net, net.a.dev)


def test_without_a_right_that_sharing_needs_it_refuses(net):
    """The five capabilities of a program alone are not enough (libxdp's dispatcher)."""
    p = net.a.run(["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", net.library.build / "vmad", "--console", net.a.dev],
                  check=False)
    print(p.text)
    assert p.wait() == 3 and f"the queues of {net.a.dev} cannot be shared here" in p.text
    assert not has_program(net, net.a.dev)


def test_the_service_is_not_started_again_where_queues_cannot_be_shared():
    unit = (pathlib.Path(__file__).resolve().parents[2] / "etc/vmad@.service").read_text()
    assert "\nRestart=on-failure\n" in unit and "\nRestartPreventExitStatus=3\n" in unit


def test_who_has_started_it_may_be_gone(net):
    """And its standard descriptors closed: what is opened later does not get their numbers."""
    net.a.run(["bash", "-c", f"exec <&- >&- 2>&-; exec {net.library.build}/vmad {net.a.dev}"])
    assert has_program(net, net.a.dev)
    [pid] = in_background(net)
    net.a.run(["kill", pid])
    wait_for(lambda: not has_program(net, net.a.dev), 10, "its end")
