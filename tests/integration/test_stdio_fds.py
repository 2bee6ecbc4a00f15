# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Connections at descriptors 0, 1 and 2, where libc's stdio and the programs that are started read and write."""

import contextlib
import socket
import threading

import pytest

PORT, BACK = 7017, 7018
BASH = """exec 3<>/dev/tcp/{to}/{port}
echo hello >&3; read -u 3 x; echo "$x"
printf '%s\\n' again >&3; head -n1 <&3
echo group >&3; read x <&3; echo "$x"
exec 4>&1 0<&3 1>&3 2>&3
echo standard; read x; echo "$x" >&4
printf 'no newline at first' ; echo; read x; echo "$x" >&4
echo to stderr >&2; read x; echo "$x" >&4
cat <<< 'a program'; head -n1 >&4
exec 3>&- 0<&- 1>&- 2>&-
echo end >&4"""


@pytest.fixture(scope="module")
def server(module_net):
    """A kernel server in b that answers "echo: " and the line."""
    tcp = module_net.b.socket(kind=socket.SOCK_STREAM)
    tcp.settimeout(None)
    tcp.bind((module_net.b.ip4, PORT))
    tcp.listen()

    def serve(c):
        with c, c.makefile("rb") as lines:
            for line in lines:
                c.sendall(b"echo: " + line)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(tcp.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield
    tcp.shutdown(socket.SHUT_RDWR)
    thread.join()
    tcp.close()


@pytest.fixture
def lines(unet, server):
    return unet


def both(net, argv):
    """What it prints without the library and with it."""
    return [net.a.run(argv, preload=preload, env={"VMA_LOG_FILE": net.tmp / "log"}).text for preload in (False, True)]


@pytest.mark.parametrize("how", ["dup2", "dup3", "dup", "F_DUPFD"])
def test_stdio_has_the_connection(lines, how):
    kernel, ours = both(lines, [lines.library.helpers / "stdio_fds", how, lines.b.ip4, PORT])
    print(kernel)
    assert ours == kernel and "end of file: 1" in kernel


def test_bash_dev_tcp(lines):
    kernel, ours = both(lines, ["bash", "-c", BASH.format(to=lines.b.ip4, port=PORT)])
    print(kernel)
    assert ours == kernel and kernel.endswith("end\n") and kernel.count("echo: ") == 7


SERVERS = {
    "socat EXEC": "socat TCP-LISTEN:{port},reuseaddr,fork EXEC:cat",
    "socat SYSTEM": "socat TCP-LISTEN:{port},reuseaddr,fork SYSTEM:'while read x; do echo $x; done'",
    "socat stdio of the child": "socat TCP-LISTEN:{port},reuseaddr,fork EXEC:cat,nofork",
    "systemd --inetd": "systemd-socket-activate -l {port} --inetd -a cat",
    "systemd accept": "systemd-socket-activate -l {port} -a /usr/bin/python3 -c "
                      "'import socket; s = socket.socket(fileno=3)\nwhile d := s.recv(99): s.sendall(d)'",
    # Without the library, as systemd; test_activation.py has it with the library.
    "systemd listener": "env -u LD_PRELOAD systemd-socket-activate -l {port} env LD_PRELOAD={library} /usr/bin/python3 -c "
                        "'import socket; l = socket.socket(fileno=3)\nwhile True:\n s = l.accept()[0]\n while d := s.recv(99): s.sendall(d)\n s.close()'",
}


# libasan cannot do systemd's: a constructor of libcap-ng calls open() before it is ready.
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.no_sanitize if "systemd" in n else ()) for n in SERVERS])
def test_a_server_gives_its_connection_to_a_program(net, name):
    """As inetd and systemd do it: three connections, two of them at once, each to its end."""
    server = net.a.popen(SERVERS[name].format(port=BACK, library=net.library.path), preload=True, env={"VMA_LOG_FILE": net.tmp / "log"})
    net.a.wait_bound(BACK, "tcp")
    clients = []
    for n in range(3):
        s = net.b.socket(kind=socket.SOCK_STREAM, timeout=10)
        s.connect((net.a.ip4, BACK))
        s.sendall(b"first %d\n" % n)
        with s.makefile("rb", 0) as answer:
            assert answer.readline() == b"first %d\n" % n, server.text
        clients.append(s)
        if n == 1 or name == "systemd listener":
            with clients.pop() as c, c.makefile("rb") as answer:
                c.sendall(b"second\n" * 1000)
                c.shutdown(socket.SHUT_WR)
                assert answer.read() == b"second\n" * 1000
    for c in clients:
        c.close()
    print(f"{name}: {server.text!r}")
