# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The programs of the rows "as people run it": a server in net.a, and in net.b what asks it for about a second.

A Work starts both, with the library or without as the Side says, and reads what the asking program printed.
"""

import glob
import json
import pathlib
import re
import shutil
import socket
import tempfile
import typing

import netns

PORT = 11111
SECONDS = 1
QUIET = {"VMA_TRACELEVEL": "ERROR"}  # what a program prints is read


class Side(typing.NamedTuple):
    """Who has the library."""
    name: str
    server: bool
    client: bool


KERNEL = Side("kernel", False, False)
BOTH = Side("both", True, True)
SERVER = Side("server", True, False)
SIDES = (KERNEL, BOTH, SERVER)


class Seen(typing.NamedTuple):
    """What one run has shown."""
    figure: float
    requests: float  # what the CPU time is divided by
    p99: float = None  # microseconds


def found(pattern, text):
    match = re.search(pattern, text)
    if not match:
        raise AssertionError(f"no {pattern!r} in what it printed:\n{text}")
    return match


MICROSECONDS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def kernel_connections(net):
    return net.a.counters()["TcpPassiveOpens"]


def answers(net, port):
    """True when a connection to net.a comes about; the connection is gone again."""
    try:
        with net.b.socket(kind=socket.SOCK_STREAM, timeout=1.0) as s:
            s.connect((net.a.ip4, port))
        return True
    except OSError:
        return False


def offloaded(fact):
    """
    Waits until a server takes packets past the kernel: it begins with that when it first waits for one. Where it never does, the
    row shows it: what the kernel carried is counted.
    """
    try:
        netns.wait_for(fact, 5.0)
    except AssertionError:
        pass


def wait_serving(net, port, ours):
    """Until the server takes connections, past the kernel where it is ours."""
    netns.wait_for(lambda: answers(net, port), 20.0, f"port {port} served")

    def past_the_kernel():
        before = kernel_connections(net)
        return answers(net, port) and kernel_connections(net) == before

    if ours:
        offloaded(past_the_kernel)


def wait_bound(host, port, proto, ours):
    """As it, for a server that must not be asked before its time."""
    host.wait_bound(port, proto)
    if ours:
        offloaded(lambda: "prog/xdp" in netns.ip("-n", host.name, "link", "show", host.dev))


class Work:
    """needs: the programs, and the Debian packages that they are in."""

    needs = {}
    unit = "requests/s"
    better_high = True
    hosts = netns.Net  # what it runs on
    begins = None  # what the asking program prints when it begins, where it does other things first

    def missing(self):
        """[(program, package)] of what is not installed."""
        return [(p, package) for p, package in self.needs.items() if not program(p)]

    def prepare(self, net):
        """Once for each row, without the library."""

    def serve(self, net, side):
        raise NotImplementedError

    def ask(self, net, side):
        """Starts what asks; its Process."""
        raise NotImplementedError

    def read(self, text, side):
        """What it printed, as Seen."""
        raise NotImplementedError


def program(name):
    """Its path, or None. PostgreSQL's are in a directory of their version."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin") or \
        next(iter(sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)), None)


class Redis(Work):
    """redis-benchmark runs a number of requests, not a time: the number follows from the run before."""

    needs = {"redis-server": "redis-server", "redis-benchmark": "redis-tools"}

    def __init__(self, clients, pipeline=1):
        self.clients = clients
        self.pipeline = pipeline
        self.rate = {side: min(10000 * clients, 40000) * pipeline for side in SIDES}
        self.requests = 0

    def serve(self, net, side):
        net.a.popen(["redis-server", "--port", PORT, "--bind", net.a.ip4, "--save", "", "--protected-mode", "no",
                     "--dir", net.tmp], side.server, QUIET)
        wait_serving(net, PORT, side.server)

    def ask(self, net, side):
        self.requests = max(round(self.rate[side] * SECONDS), 1000)
        return net.b.popen(["redis-benchmark", "-h", net.a.ip4, "-p", PORT, "-n", self.requests, "-c", self.clients,
                            "-P", self.pipeline, "-t", "get", "--csv"], side.client, QUIET)

    def read(self, text, side):
        # rate, then the latencies in milliseconds: average, least, p50, p95, p99, most
        columns = [float(word) for word in found(r'"GET"((?:,"[\d.]+")+)', text).group(1).replace('"', "").split(",")[1:]]
        self.rate[side] = columns[0]
        return Seen(columns[0], self.requests, columns[5] * 1e3)


class Prefork(Work):
    """Two forked workers accept at one listener, and serve one connection after the other; four processes ask."""

    unit = "connections/s"

    def __init__(self, binaries):
        self.program = binaries / "tcp_conns"

    def serve(self, net, side):
        net.a.popen([self.program, "server", net.a.ip4, PORT, 2], side.server, QUIET)
        wait_serving(net, PORT, side.server)

    def ask(self, net, side):
        return net.b.popen([self.program, "client", net.a.ip4, PORT, SECONDS, 4], side.client, QUIET)

    def read(self, text, side):
        rates = [float(rate) for rate in re.findall(r"^rate (\d+)$", text, re.M)]
        if len(rates) != 4:
            raise AssertionError(f"{len(rates)} of 4 clients have ended well:\n{text}")
        return Seen(sum(rates), sum(rates) * SECONDS)


class Memcached(Work):
    """Two threads on either side."""

    needs = {"memcached": "memcached"}

    def __init__(self, binaries):
        self.asker = binaries / "memcached_ask"

    def serve(self, net, side):
        net.a.popen(["memcached", "-u", "root", "-l", net.a.ip4, "-p", PORT, "-U", 0, "-t", 2], side.server, QUIET)
        wait_serving(net, PORT, side.server)

    def ask(self, net, side):
        return net.b.popen([self.asker, net.a.ip4, PORT, SECONDS, 2, 25], side.client, QUIET)

    def read(self, text, side):
        answers_, rate, p99 = found(r"answers (\d+) rate (\d+) p50 [\d.]+ p99 ([\d.]+)", text).groups()
        return Seen(float(rate), float(answers_), float(p99))


# As Debian ships it, but for the files' places.
NGINX = """
daemon off; worker_processes auto; pid {dir}/pid; error_log {dir}/error.log; user www-data;
events {{ worker_connections 768; }}
http {{
  access_log off; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir};
  uwsgi_temp_path {dir}; scgi_temp_path {dir}; sendfile on; tcp_nopush on;
  server {{ listen {address}:{port}{option}; root {dir}; }}
}}
"""
SIZES = {"1k": 1024, "100k": 102400}


def start_nginx(host, ours, option=""):
    """With two files, whose names are their sizes."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="nginx-", dir=host.net.tmp))
    directory.chmod(0o755)  # its workers are www-data
    for name, size in SIZES.items():
        (directory / name).write_bytes(b"x" * size)
    conf = directory / "nginx.conf"
    conf.write_text(NGINX.format(dir=directory, address=host.ip4, port=PORT, option=option))
    host.popen([program("nginx"), "-c", conf], ours, QUIET)


def start_wrk(net, side, name, *options):
    return net.b.popen(["wrk", "-t2", "-c50", f"-d{SECONDS}", "--latency", *options, f"http://{net.a.ip4}:{PORT}/{name}"],
                       side.client, QUIET)


def read_wrk(text):
    wrong = re.search(r"^.*(?:Non-2xx|Socket errors).*$", text, re.M)
    if wrong:
        raise AssertionError(f"wrk: {wrong.group(0).strip()}")
    requests = found(r"(\d+) requests in", text).group(1)
    p99, unit = found(r"99% +([\d.]+)(us|ms|s)", text).groups()
    return Seen(float(found(r"Requests/sec: +([\d.]+)", text).group(1)), float(requests), float(p99) * MICROSECONDS[unit])


class Nginx(Work):
    needs = {"nginx": "nginx-light", "wrk": "wrk"}

    def __init__(self, file, *options):
        self.file = file
        self.options = options

    def serve(self, net, side):
        start_nginx(net.a, side.server)
        wait_serving(net, PORT, side.server)

    def ask(self, net, side):
        return start_wrk(net, side, self.file, *self.options)

    def read(self, text, side):
        return read_wrk(text)


class ThreeHosts(netns.Net):
    """
    A proxy has a network on either side.

        net.b [ veth-b ] ---- [ veth-a  net.a  veth-ac ] ---- [ veth-c ]  net.c
    """

    def _make(self):
        super()._make()
        self.c = netns.Host(self, self.a.name[:-1] + "c", "veth-c", "10.78.0.2", None)
        netns.ip("netns", "add", self.c.name)
        netns.ip("-n", self.a.name, "link", "add", "veth-ac", "type", "veth", "peer", "name", "veth-c", "netns", self.c.name)
        for name, dev, address in ((self.a.name, "veth-ac", "10.78.0.1"), (self.c.name, "veth-c", self.c.ip4)):
            netns.ip("-n", name, "addr", "add", f"{address}/24", "dev", dev)
            netns.ip("-n", name, "link", "set", dev, "up")

    def close(self):
        super().close()
        if hasattr(self, "c"):
            self.c.close()
            netns.remove_namespace(self.c.name)


HAPROXY = """
global
  maxconn 500
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
frontend f
  bind {a}:{port}
  default_backend b
backend b
  server s {c}:{port}
"""


class Haproxy(Work):
    """In front of nginx, which counts as a client: alone preloaded is haproxy."""

    needs = {"haproxy": "haproxy", "nginx": "nginx-light", "wrk": "wrk"}
    hosts = ThreeHosts

    def serve(self, net, side):
        start_nginx(net.c, side.client)
        wait_bound(net.c, PORT, "tcp", side.client)
        conf = net.tmp / "haproxy.cfg"
        conf.write_text(HAPROXY.format(a=net.a.ip4, c=net.c.ip4, port=PORT))
        net.a.popen([program("haproxy"), "-db", "-f", conf], side.server, QUIET)
        wait_serving(net, PORT, side.server)
        # Its other interface has queues when it has first been used, which is not what is measured (docs/limits.md).
        if side.server:
            offloaded(lambda: self._has_queues_behind(net))

    @staticmethod
    def _has_queues_behind(net):
        """After a page that comes from there."""
        net.b.run(["curl", "-s", "-m", "5", "-o", "/dev/null", f"http://{net.a.ip4}:{PORT}/1k"], check=False)
        return "xdp" in netns.ip("-n", net.a.name, "link", "show", "veth-ac")

    def ask(self, net, side):
        return start_wrk(net, side, "1k")

    def read(self, text, side):
        return read_wrk(text)


# What a program needs that does not run as root: docs/limits.md.
AMBIENT = "+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock"


class Pgbench(Work):
    """SELECTs by key (-S), a connection and so a server process for each client."""

    needs = {"postgres": "postgresql", "initdb": "postgresql", "pgbench": "postgresql"}
    unit = "transactions/s"

    def __init__(self, clients):
        self.clients = clients

    def _as_postgres(self, *argv):
        """It refuses to run as root."""
        return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", f"--inh-caps={AMBIENT}",
                f"--ambient-caps={AMBIENT}", program(argv[0]), *argv[1:]]

    def _start(self, net, ours):
        net.a.popen(self._as_postgres("postgres", "-D", net.tmp / "postgres", "-h", net.a.ip4, "-p", PORT, "-k", "",
                                      "-c", "fsync=off"), ours, QUIET)
        wait_serving(net, PORT, ours)

    def prepare(self, net):
        data = net.tmp / "postgres"
        if data.exists():
            return
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        net.a.run(self._as_postgres("initdb", "-D", data, "-A", "trust", "-N", "-E", "UTF8", "--no-locale"), timeout=60.0)
        with open(data / "pg_hba.conf", "a", encoding="utf-8") as hba:
            hba.write(f"host all all {net.b.ip4}/24 trust\n")
        self._start(net, False)
        net.b.run([program("pgbench"), "-i", "-q", "-s", 5, "-h", net.a.ip4, "-p", PORT, "-U", "postgres", "postgres"], timeout=60.0)
        net.a.close()

    def serve(self, net, side):
        self._start(net, side.server)

    def ask(self, net, side):
        return net.b.popen([program("pgbench"), "-S", "-n", "-c", self.clients, "-j", 2, "-T", SECONDS, "-h", net.a.ip4, "-p", PORT,
                            "-U", "postgres", "postgres"], side.client, QUIET)

    def read(self, text, side):
        return Seen(float(found(r"tps = ([\d.]+)", text).group(1)),
                    float(found(r"actually processed: (\d+)", text).group(1)))


class Mariadb(Work):
    """sysbench's SELECTs by key; a server thread for each client."""

    needs = {"mariadbd": "mariadb-server-core", "mariadb-install-db": "mariadb-server-core",
             "my_print_defaults": "mariadb-client-core", "sysbench": "sysbench"}
    unit = "transactions/s"

    def __init__(self, clients):
        self.clients = clients

    def _sysbench(self, net, what):
        return ["sysbench", "oltp_point_select", "--db-driver=mysql", f"--mysql-host={net.a.ip4}", f"--mysql-port={PORT}",
                "--mysql-user=root", "--mysql-db=test", "--tables=1", "--table-size=10000", f"--threads={self.clients}",
                f"--time={SECONDS}", "--percentile=99", what]

    def _start(self, net, ours):
        net.a.popen([program("mariadbd"), "--no-defaults", "--user=root", f"--datadir={net.tmp}/mariadb", "--skip-grant-tables",
                     f"--bind-address={net.a.ip4}", f"--port={PORT}", f"--socket={net.tmp}/mariadb.sock",
                     "--skip-name-resolve", "--skip-log-bin", "--max-connect-errors=1000000"], ours, QUIET)
        wait_serving(net, PORT, ours)

    def prepare(self, net):
        data = net.tmp / "mariadb"
        if data.exists():
            return
        net.a.run([program("mariadb-install-db"), "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
                   "--auth-root-authentication-method=normal"], timeout=120.0)
        (data / "test").mkdir()  # a database
        self._start(net, False)
        net.b.run(self._sysbench(net, "prepare"), timeout=60.0)
        for process in net.a.processes:
            process.stop(timeout=30.0)

    def serve(self, net, side):
        self._start(net, side.server)

    def ask(self, net, side):
        return net.b.popen(self._sysbench(net, "run"), side.client, QUIET)

    def read(self, text, side):
        count, rate = found(r"transactions: +(\d+) +\(([\d.]+) per sec", text).groups()
        return Seen(float(rate), float(count), float(found(r"99th percentile: +([\d.]+)", text).group(1)) * 1e3)


UNBOUND = """
server:
  interface: {address}@{port}
  access-control: 0.0.0.0/0 allow
  do-daemonize: no
  chroot: ""
  username: ""
  directory: "{dir}"
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  local-zone: "bench." static
{data}
remote-control:
  control-enable: no
"""
NAMES_ASKED = 100


class Dns(Work):
    """unbound answers from its own zone, dnsperf has a hundred queries under way."""

    needs = {"unbound": "unbound", "dnsperf": "dnsperf"}
    unit = "queries/s"

    def prepare(self, net):
        names = [f"host{n}.bench." for n in range(NAMES_ASKED)]
        (net.tmp / "queries").write_text("".join(f"{name} A\n" for name in names))
        data = "\n".join(f"  local-data: \"{name} A 10.99.0.{n}\"" for n, name in enumerate(names))
        (net.tmp / "unbound.conf").write_text(UNBOUND.format(address=net.a.ip4, port=PORT, dir=net.tmp, data=data))

    def serve(self, net, side):
        net.a.popen([program("unbound"), "-d", "-c", net.tmp / "unbound.conf"], side.server, QUIET)
        wait_bound(net.a, PORT, "udp", side.server)

    def ask(self, net, side):
        return net.b.popen(["dnsperf", "-s", net.a.ip4, "-p", PORT, "-d", net.tmp / "queries", "-l", SECONDS, "-q", 100],
                           side.client, QUIET)

    def read(self, text, side):
        lost = int(found(r"Queries lost: +(\d+)", text).group(1))
        done = float(found(r"Queries completed: +(\d+)", text).group(1))
        if lost > done / 100:
            raise AssertionError(f"dnsperf: {lost} queries lost, {done:.0f} answered")
        return Seen(float(found(r"Queries per second: +([\d.]+)", text).group(1)), done)


class H2load(Work):
    """HTTP/2 without TLS, ten requests under way on each connection."""

    needs = {"nginx": "nginx-light", "h2load": "nghttp2-client"}

    def serve(self, net, side):
        start_nginx(net.a, side.server, " http2")
        wait_serving(net, PORT, side.server)

    def ask(self, net, side):
        return net.b.popen(["h2load", "-D", SECONDS, "-c", 50, "-m", 10, f"http://{net.a.ip4}:{PORT}/1k"], side.client, QUIET)

    def read(self, text, side):
        rate = float(found(r"finished in [\d.]+m?s, ([\d.]+) req/s", text).group(1))
        good, wrong = found(r"(\d+) succeeded, (\d+) failed", text).groups()
        if int(wrong) > int(good) / 100:
            raise AssertionError(f"h2load: {wrong} requests failed, {good} succeeded")
        return Seen(rate, float(good))


class Iperf(Work):
    """A "request" is one of iperf3's blocks of 128 KiB. Down: the server sends."""

    needs = {"iperf3": "iperf3"}
    unit = "Gbit/s"

    def __init__(self, streams, way):
        self.streams = streams
        self.options = ["-R"] if way == "down" else []

    def serve(self, net, side):
        net.a.popen(["iperf3", "-s", "-B", net.a.ip4], side.server, QUIET)
        # Its first connection decides on the test: none that only looks.
        wait_bound(net.a, 5201, "tcp", side.server)

    def ask(self, net, side):
        return net.b.popen(["iperf3", "-c", net.a.ip4, "-t", SECONDS, "-P", self.streams, "-J", *self.options], side.client, QUIET)

    def read(self, text, side):
        start = text.find("{\n")
        end = json.loads(text[start:])["end"] if start >= 0 else {}
        if "sum_received" not in end:
            raise AssertionError(f"iperf3 printed no sum:\n{text}")
        return Seen(end["sum_received"]["bits_per_second"] / 1e9, end["sum_received"]["bytes"] / (1 << 17))


class Pingpong(Work):
    """sockperf, 64 bytes; half a round trip, the median."""

    needs = {"sockperf": "sockperf"}
    unit = "microseconds"
    better_high = False
    begins = "Starting test"  # it learns the clock's speed before, for two seconds

    def __init__(self, *options):
        self.options = options

    def serve(self, net, side):
        net.a.popen(["sockperf", "server", "-i", net.a.ip4, "-p", PORT, *self.options], side.server, QUIET)
        wait_bound(net.a, PORT, "tcp" if self.options else "udp", side.server)

    def ask(self, net, side):
        return net.b.popen(["sockperf", "ping-pong", "-i", net.a.ip4, "-p", PORT, "-m", 64, "-t", SECONDS, *self.options],
                           side.client, QUIET)

    def read(self, text, side):
        seen = {float(p): float(us) for p, us in re.findall(r"percentile +([\d.]+) = +([\d.]+)", text)}
        if 50.0 not in seen:
            raise AssertionError(f"sockperf printed no median:\n{text}")
        sent = found(r"\[Total Run\].*?SentMessages=(\d+)", text).group(1)
        return Seen(seen[50.0], float(sent), seen.get(99.0))
