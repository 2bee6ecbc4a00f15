# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Real programs, unmodified: with the library on either side or both, what they answer is right."""

import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import tempfile

import pytest

from netns import wait_for

# What a program prints is read: without the library's lines.
QUIET = {"VMA_TRACELEVEL": "ERROR"}
PAIRS = [pytest.param(True, False, id="ours-serves"), pytest.param(False, True, id="ours-asks"),
         pytest.param(True, True, id="both-ours")]
pairs = pytest.mark.parametrize("server_ours, client_ours", PAIRS)


def attached(net, port, server_ours):
    """
    Waits until connections to the server of net.a pass the kernel's TCP by: it attaches when it first waits for one. What
    the kernel took before is over then: a probe's connection that a busy server still has to answer would be counted.
    """
    def probe():
        before = net.a.counters()["TcpPassiveOpens"]
        with net.b.socket(kind=socket.SOCK_STREAM) as s:
            s.connect((net.a.ip4, port))
        return net.a.counters()["TcpPassiveOpens"] == before

    net.a.wait_bound(port, "tcp")
    if server_ours:
        wait_for(probe, what=f"port {port} attached")
        wait_for(lambda: not net.a.run(["ss", "-Htn", f"sport = :{port}"]).text.strip(), what=f"the kernel's connections of port {port} ended")


@contextlib.contextmanager
def offloaded(net, server_ours, client_ours, opens=0, late=0):
    """
    What happens meanwhile passes no kernel TCP on a side that has the library, but for the first `opens` connections, which may
    be made before the server attaches: so few segments would not carry what the tests carry, tens of thousands. late: so many
    may wait for a busy process of several, on a busy machine, and are the kernel's then.
    """
    rest = 64 * 6  # what a process that ends leaves in TIME_WAIT goes to the kernel, 64 connections at most, five segments each
    with contextlib.ExitStack() as stack:
        if server_ours:
            stack.enter_context(net.a.tcp_bypassed(50 + rest + 1000 * late, opens + late))
        if client_ours:
            # The kernel ends what the client leaves open, some ten segments each; three of redis' clients leave TIME_WAITs.
            stack.enter_context(net.b.tcp_bypassed(2000 + 3 * rest))
        yield


def mostly_offloaded(net, server_ours, client_ours, late, ask):
    """How many wait for a busy process, and are the kernel's, is the machine's to say: ask() again, until most of a round are not."""
    for tries in range(5):
        try:
            with offloaded(net, server_ours, client_ours, late=late):
                ask()
            return
        except AssertionError as e:
            if tries == 4 or not late or "the kernel" not in str(e):
                raise
            print(f"once more: {e}")


def needs(*programs):
    """Left out where a program is not installed; scripts/deps.sh installs all of them."""
    missing = [p for p in programs if not shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin")]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {missing}")


@needs("sockperf")
@pairs
def test_sockperf(net, server_ours, client_ours):
    net.a.popen(["sockperf", "server", "--tcp", "-i", net.a.ip4, "-p", "11111"], preload=server_ours)
    attached(net, 11111, server_ours)
    with offloaded(net, server_ours, client_ours):
        for mode in ("ping-pong", "throughput"):
            integrity = ["--data-integrity"] if mode == "ping-pong" else ["-m", "100"]
            out = net.b.run(["sockperf", mode, "--tcp", "-i", net.a.ip4, "-p", "11111", "-t", "1", *integrity],
                            preload=client_ours).text
            assert "Test ended" in out or "Summary" in out, out


@needs("iperf3")
@pairs
@pytest.mark.parametrize("options", [[], ["-R"], ["-P", "4"], ["-P", "4", "-R"], ["--bidir"]],
                         ids=["up", "down", "4-up", "4-down", "both-ways"])
def test_iperf3(net, server_ours, client_ours, options):
    net.a.popen(["iperf3", "-s", "-1"], preload=server_ours)
    net.a.wait_bound(5201, "tcp")
    with offloaded(net, server_ours, client_ours, opens=1):
        out = net.b.run(["iperf3", "-J", "-c", net.a.ip4, "-n" if options != ["--bidir"] else "-t",
                         "100M" if options != ["--bidir"] else "1", *options], preload=client_ours, env=QUIET).text
    end = json.loads(out)["end"]
    assert end["sum_received"]["bytes"] > 1e6, out
    if options == ["--bidir"]:
        assert end["sum_received_bidir_reverse"]["bytes"] > 1e6, out


@needs("redis-server", "redis-cli", "redis-benchmark")
@pairs
def test_redis(net, server_ours, client_ours):
    server = net.a.popen(["redis-server", "--port", "6379", "--bind", net.a.ip4, "--save", "", "--protected-mode", "no",
                          "--dir", str(net.tmp)], preload=server_ours)
    server.wait_text("Ready to accept connections")
    cli = ["redis-cli", "-h", net.a.ip4]
    blob = hashlib.sha256(b"x").hexdigest() * 1000
    bench = ["redis-benchmark", "-h", net.a.ip4, "-q"]
    with offloaded(net, server_ours, client_ours):
        assert net.b.run([*cli, "set", "key", blob], preload=client_ours, env=QUIET).text.strip() == "OK"
        assert net.b.run([*cli, "get", "key"], preload=client_ours, env=QUIET).text.strip() == blob
        out = net.b.run([*bench, "-n", "5000", "-c", "50", "-t", "set,get,lpush,lrange_100"], preload=client_ours).text
        assert len(re.findall(r"requests per second", out)) == 5, out
        out = net.b.run([*bench, "-n", "50000", "-P", "16", "-t", "set,get"], preload=client_ours).text
        assert len(re.findall(r"requests per second", out)) == 2, out
        # Without keep-alive: a connection for each request.
        out = net.b.run([*bench, "-n", "2000", "-k", "0", "-t", "get"], preload=client_ours).text
        assert len(re.findall(r"requests per second", out)) == 1, out
        net.b.run([*cli, "shutdown", "nosave"], preload=client_ours, check=False)
    assert server.wait() == 0


MEMCACHED_CLIENT = """
import random, socket, sys
s = socket.create_connection((sys.argv[1], 11211)); f = s.makefile('rwb')
r = random.Random(7)
values = {}
for i in range(300):
    k, v = b'key%d' % r.randint(0, 50), r.randbytes(r.randint(0, 60000))
    values[k] = v
    f.write(b'set %s 0 0 %d\\r\\n%s\\r\\n' % (k, len(v), v)); f.flush()
    assert f.readline() == b'STORED\\r\\n'
for k, v in values.items():
    f.write(b'get %s\\r\\n' % k); f.flush()
    head = f.readline().split()
    assert head[0] == b'VALUE' and int(head[3]) == len(v), head
    assert f.read(len(v) + 2)[:-2] == v
    assert f.readline() == b'END\\r\\n'
print('fine', len(values))
"""


@needs("memcached")
@pairs
def test_memcached(net, server_ours, client_ours):
    net.a.popen(["memcached", "-u", "root", "-l", net.a.ip4, "-p", "11211", "-U", "0", "-t", "4"], preload=server_ours)
    attached(net, 11211, server_ours)
    with offloaded(net, server_ours, client_ours):
        client = net.b.python(MEMCACHED_CLIENT, client_ours, [net.a.ip4])
        assert client.wait() == 0, client.text


@needs("memcached")
def test_a_program_that_gave_its_capabilities_away_stays_with_the_kernel(net):
    """memcached becomes nobody before it listens: no ring can be opened any more, and nothing else is lost."""
    server = net.a.popen(["memcached", "-u", "nobody", "-l", net.a.ip4, "-p", "11211", "-U", "0"], preload=True)
    net.a.wait_bound(11211, "tcp")
    client = net.b.python(MEMCACHED_CLIENT, True, [net.a.ip4])
    assert client.wait() == 0, client.text
    server.wait_text("sockets stay with the kernel")


NGINX = """
daemon off; master_process {master}; worker_processes {workers}; pid {dir}/pid; error_log {dir}/error.log; user root;
events {{ worker_connections 1000; }}
http {{
  access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir};
  uwsgi_temp_path {dir}; scgi_temp_path {dir}; sendfile {sendfile}; tcp_nopush {sendfile};
  server {{ listen 8080; root {dir}; location /small {{ return 200 "hello\\n"; }} }}
}}
"""


def wrk(net, workers, server_ours, client_ours):
    """
    Forty connections, then a new one for each request: thousands. Of several workers a busy one may let those forty wait
    for 200 ms, which are the kernel's then (docs/limits.md).
    """
    at_once = 40

    def ask():
        for extra in ([], ["-H", "Connection: close"]):
            out = net.b.run(["wrk", "-t2", f"-c{at_once}", "-d1", *extra, f"http://{net.a.ip4}:8080/small"], preload=client_ours).text
            assert re.search(r"Requests/sec", out) and "Socket errors" not in out and "Non-2xx" not in out, out
    mostly_offloaded(net, server_ours, client_ours, at_once if workers > 1 else 0, ask)


def curl_gets(net, data, preload=False):
    out = net.tmp / "got"
    net.b.run(["curl", "-sS", "-o", str(out), f"http://{net.a.ip4}:8080/file"], preload=preload)
    assert out.read_bytes() == data


def few_late(workers):
    """One worker of several that is off its processor leaves its clients to another, by the kernel."""
    return 2 if workers > 1 else 0


@needs("nginx", "curl", "wrk")
@pairs
@pytest.mark.parametrize("master, workers, sendfile", [("off", 1, "off"), ("on", 1, "on"), ("on", 2, "on")],
                         ids=["one", "master-and-worker", "master-and-two"])
def test_nginx(net, server_ours, client_ours, master, workers, sendfile):
    client_ours = client_ours and not net.library.sanitize  # curl hangs with libasan and libubsan, also without us
    data = random.Random(3).randbytes(20_000_000)
    (net.tmp / "file").write_bytes(data)
    conf = net.tmp / "nginx.conf"
    conf.write_text(NGINX.format(dir=net.tmp, master=master, workers=workers, sendfile=sendfile))
    server = net.a.popen(["nginx", "-c", str(conf)], preload=server_ours)
    attached(net, 8080, server_ours)

    def fetch():
        for _ in range(2):
            curl_gets(net, data, client_ours)

    mostly_offloaded(net, server_ours, client_ours, few_late(workers), fetch)
    wrk(net, workers, server_ours, client_ours)
    server.kill(15)
    assert server.wait() == 0, server.text


@needs("nginx", "curl", "wrk")
@pytest.mark.parametrize("workers", [1, 2])
def test_nginx_whose_workers_become_another_user(net, workers):
    """As Debian ships it: a worker is www-data before it first waits, and what it needs by then is open."""
    data = random.Random(6).randbytes(5_000_000)
    with tempfile.TemporaryDirectory() as d:
        os.chmod(d, 0o755)
        pathlib.Path(d, "file").write_bytes(data)
        conf = net.tmp / "nginx.conf"
        conf.write_text(NGINX.format(dir=d, master="on", workers=workers, sendfile="on").replace("user root", "user www-data"))
        server = net.a.popen(["nginx", "-c", str(conf)], preload=True)
        attached(net, 8080, True)
        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        assert len(children) == workers
        for child in children:
            status = pathlib.Path(f"/proc/{child}/status")
            wait_for(lambda s=status: re.search(r"^Uid:\s+33\s+33\s+33\s", s.read_text(), re.M), what=f"{child} is www-data")
            assert re.search(r"^CapPrm:\s+0+\nCapEff:\s+0+$", status.read_text(), re.M), status.read_text()
        mostly_offloaded(net, True, False, few_late(workers), lambda: curl_gets(net, data))
        wrk(net, workers, True, False)
        # A worker that dies leaves its program on the interface; the next one takes the interface over before it is www-data.
        for child in children:
            os.kill(int(child), 9)
        attached(net, 8080, True)
        assert net.b.run(["curl", "-sS", f"http://{net.a.ip4}:8080/small"]).text == "hello\n"
        server.kill(15)
        assert server.wait() == 0, server.text


HAPROXY = """
global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend f
  bind {a}:8081
  default_backend b
backend b
  server s {b}:8080
"""


@needs("nginx", "curl", "wrk", "haproxy")
@pairs
def test_haproxy(net, server_ours, client_ours):
    """curl and nginx in net.b, haproxy between them in net.a."""
    client_ours = client_ours and not net.library.sanitize  # as above
    data = random.Random(4).randbytes(1_000_000)
    (net.tmp / "file").write_bytes(data)
    nginx, proxy = net.tmp / "nginx.conf", net.tmp / "haproxy.cfg"
    nginx.write_text(NGINX.format(dir=net.tmp, master="off", workers=1, sendfile="off"))
    proxy.write_text(HAPROXY.format(a=net.a.ip4, b=net.b.ip4))
    net.b.popen(["nginx", "-c", str(nginx)])
    net.b.wait_bound(8080, "tcp")
    net.a.popen(["haproxy", "-db", "-f", str(proxy)], preload=server_ours)
    attached(net, 8081, server_ours)
    out = net.tmp / "got"
    # nginx is in the kernel of net.b.
    with offloaded(net, server_ours, False):
        net.b.run(["curl", "-sS", "-o", str(out), f"http://{net.a.ip4}:8081/file"], preload=client_ours)
        assert out.read_bytes() == data
        text = net.b.run(["wrk", "-t1", "-c20", "-d1", f"http://{net.a.ip4}:8081/small"], preload=client_ours).text
        assert "Socket errors" not in text and "Non-2xx" not in text, text


@needs("socat")
@pairs
def test_socat(net, server_ours, client_ours):
    data = random.Random(5).randbytes(5_000_000)
    (net.tmp / "in").write_bytes(data)
    server = net.a.popen(["socat", "-u", "TCP-LISTEN:9000,reuseaddr", f"CREATE:{net.tmp}/out"], preload=server_ours)
    net.a.wait_bound(9000, "tcp")
    net.b.run(["socat", "-u", f"OPEN:{net.tmp}/in", f"TCP:{net.a.ip4}:9000"], preload=client_ours)
    assert server.wait() == 0, server.text
    assert (net.tmp / "out").read_bytes() == data


THREADED = """
import socketserver, sys
class H(socketserver.BaseRequestHandler):
    def handle(self):
        while (d := self.request.recv(65536)): self.request.sendall(d)
class S(socketserver.ThreadingTCPServer):
    allow_reuse_address = True; request_queue_size = 200; daemon_threads = True
S((sys.argv[1], 9100), H).serve_forever()
"""

ASYNC = """
import asyncio, sys
async def handle(r, w):
    while (d := await r.read(65536)):
        w.write(d); await w.drain()
    w.close()
async def main():
    s = await asyncio.start_server(handle, sys.argv[1], 9100, backlog=200)
    await s.serve_forever()
asyncio.run(main())
"""

ASYNC_CLIENT = """
import asyncio, random, sys
async def one(i):
    r = random.Random(i)
    reader, writer = await asyncio.open_connection(sys.argv[1], 9100)
    for _ in range(5):
        d = r.randbytes(r.randint(1, 50000))
        writer.write(d)
        assert await reader.readexactly(len(d)) == d
    writer.write_eof()
    assert await reader.read() == b''
    writer.close(); await writer.wait_closed()
async def main():
    await asyncio.gather(*(one(i) for i in range(100)))
asyncio.run(main()); print('fine')
"""


@pairs
@pytest.mark.parametrize("source", [THREADED, ASYNC], ids=["threads", "asyncio"])
def test_python_servers(net, server_ours, client_ours, source):
    net.a.python(source, server_ours, [net.a.ip4])
    attached(net, 9100, server_ours)
    with offloaded(net, server_ours, client_ours):
        client = net.b.python(ASYNC_CLIENT, client_ours, [net.a.ip4])
        assert client.wait(40) == 0, client.text
