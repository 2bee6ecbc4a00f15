# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Services that are started when somebody wants them: what has woken the starter is there for the service."""

import pathlib
import socket
import struct

import pytest

from netns import KERNEL, PYTHON, wait_for
from test_tcp_programs import needs

PORT = 7031
# libasan cannot do systemd's: a constructor of libcap-ng calls open() before it is ready.
pytestmark = pytest.mark.no_sanitize
STREAM = "import socket\nl = socket.socket(fileno={fd})\nl.settimeout(20)\nfor _ in range(3):\n s = l.accept()[0]\n" \
         " while d := s.recv(99): s.sendall(d)\n s.close()\n"
DATAGRAM = "import socket\ns = socket.socket(fileno={fd})\ns.settimeout(20)\nfor _ in range(3):\n d, a = s.recvfrom(99)\n s.sendto(d, a)\n"


def ask(net, datagram):
    """Three clients: the first wakes the starter, the others find the service."""
    kind = socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM
    for n in range(3):
        with net.b.socket(kind=kind, timeout=20) as c:
            c.connect((net.a.ip4, PORT))
            c.sendall(b"client %d" % n)
            assert c.recv(99) == b"client %d" % n
    print("three clients got their answers")


# A client that waits enters the kernel's queue by bpf_sk_assign_tcp_reqsk().
implants = pytest.mark.skipif(KERNEL < (6, 9), reason="needs Linux 6.9 (docs/limits.md)")
datagrams = pytest.mark.parametrize("datagram", [pytest.param(False, marks=implants, id="stream"), pytest.param(True, id="datagram")])


@pytest.mark.parametrize("service", ["ours", "kernel"])
@datagrams
def test_systemd_socket_activate(net, datagram, service):
    """It passes its environment on only where it is told to: without LD_PRELOAD the service is a program of the kernel's."""
    options = ["-d"] * datagram + ["-E", "LD_PRELOAD"] * (service == "ours")
    server = net.a.popen(["systemd-socket-activate", "-l", str(PORT), *options, PYTHON, "-c", (DATAGRAM if datagram else STREAM).format(fd=3)],
                         preload=True, env={"VMA_LOG_FILE": net.tmp / "log"})
    net.a.wait_bound(PORT, "udp" if datagram else "tcp")
    net.a.wait_steered(PORT, "udp" if datagram else "tcp")
    ask(net, datagram)
    assert server.wait() == 0, server.text


@implants
def test_the_log_says_what_becomes_of_a_listener_from_outside(net):
    """LISTEN_FDS: it is the kernel's, and that is not kept secret."""
    service = "import socket\nsocket.socket()\nl = socket.socket(fileno=3)\ns = l.accept()[0]\ns.sendall(s.recv(99))\n"
    server = net.a.popen(["systemd-socket-activate", "-l", str(PORT), "-E", "LD_PRELOAD", "-E", "VMA_TRACELEVEL", PYTHON, "-c", service],
                         preload=True, env={"VMA_TRACELEVEL": "DEBUG"})
    net.a.wait_bound(PORT, "tcp")
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
        c.connect((net.a.ip4, PORT))
        c.sendall(b"client")
        assert c.recv(99) == b"client"
    assert server.wait() == 0, server.text
    server.wait_text("fd 3 stays with the kernel: the program was started with it")


@needs("inetd")
@datagrams
def test_inetd_waits(net, datagram, tmp_path):
    """A service of kind `wait` has the listener, or the socket, as its descriptor 0."""
    script = tmp_path / "service.py"
    script.write_text((DATAGRAM if datagram else STREAM).format(fd=0))
    conf = tmp_path / "inetd.conf"
    conf.write_text(f"{PORT} {'dgram udp' if datagram else 'stream tcp'} wait root {PYTHON} python3 {script}\n")
    net.a.popen(["inetd", "-d", "-i", conf], preload=True, env={"VMA_LOG_FILE": net.tmp / "log"})
    net.a.wait_bound(PORT, "udp" if datagram else "tcp")
    net.a.wait_steered(PORT, "udp" if datagram else "tcp")
    # Twice: it waits again when the service has ended.
    ask(net, datagram)
    ask(net, datagram)
    wait_for(lambda: not net.a.run(["pgrep", "-f", str(script)], check=False).text, what="the services' end")


def record(kind, content):
    return struct.pack("!BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def fastcgi_ping(net):
    """What php-fpm says to a request for its ping.path (FastCGI 1.0)."""
    def pair(name, value):
        return bytes((len(name), len(value))) + name + value
    values = b"".join(pair(k, v) for k, v in ((b"SCRIPT_NAME", b"/ping"), (b"SCRIPT_FILENAME", b"/ping"), (b"REQUEST_METHOD", b"GET")))
    with net.b.socket(kind=socket.SOCK_STREAM, timeout=20) as c:
        c.connect((net.a.ip4, PORT))
        c.sendall(record(1, struct.pack("!HB5x", 1, 0)) + record(4, values) + record(4, b"") + record(5, b""))
        answer = b""
        while d := c.recv(9999):
            answer += d
    return answer


FPM = next(pathlib.Path("/usr/sbin").glob("php-fpm*"), pathlib.Path("php-fpm"))


@implants
@needs(FPM.name)
@pytest.mark.parametrize("manager", ["ondemand", "static"])
def test_php_fpm(net, manager, tmp_path):
    conf = tmp_path / "fpm.conf"
    conf.write_text(f"""[global]
error_log = {tmp_path}/error.log
[www]
user = root
group = root
listen = {net.a.ip4}:{PORT}
pm = {manager}
pm.max_children = 3
pm.process_idle_timeout = 1s
pm.max_requests = 4
ping.path = /ping
""")
    server = net.a.popen([FPM, "-F", "-R", "-n", "-y", conf], preload=True, env={"VMA_LOG_FILE": net.tmp / "log"})
    net.a.wait_bound(PORT, "tcp")
    for _ in range(12):
        assert b"pong" in fastcgi_ping(net), server.text
    print(f"pm = {manager}: 12 requests, and workers that are replaced")
