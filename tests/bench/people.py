# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The rows "as people run it": nothing is pinned, and in some of them an endless loop runs beside on each core.

    net.b  [ what asks ] ---- veth ---- [ the server ]  net.a

Each round measures kernel sockets, the library on both sides, and the library with the server alone, one after the other; the
next round begins with another of them. A row shows the medians, and the medians of the rounds' ratios to the kernel: of the
figure, of the CPU time for each request (the whole machine's), of the 99th percentile. Every ratio is above 1 when the library
is better. A side that fails twice in a row is given up, and the row says why.
"""

import contextlib
import dataclasses
import signal
import statistics
import sys
import typing

import machine
import netns
from programs import (BOTH, KERNEL, SERVER, SIDES, Dns, H2load, Haproxy, Iperf, Mariadb, Memcached, Nginx, Pgbench, Pingpong,
                      Prefork, Redis)

ROUNDS = 5
PATIENCE = 30.0  # seconds for a client of one


class Missing(Exception):
    """A program that is not installed."""


@dataclasses.dataclass
class Row:
    """
    works: from the folder of binaries, the ways that are measured, of which the worst counts; each is one Work, or several at
    once. Several are on hosts of their own, like containers, and their figure is the geometric mean.
    """
    works: typing.Callable
    loaded: bool = False


def one(work):
    return Row(lambda binaries: {"": [work()]})


def loaded(row):
    return dataclasses.replace(row, loaded=True)


def both_ways(streams):
    return Row(lambda binaries: {way: [Iperf(streams, way)] for way in ("up", "down")})


ROWS = {
    "busy_redis_1": one(lambda: Redis(1)),
    "busy_redis_50": one(lambda: Redis(50)),
    "busy_redis_500": one(lambda: Redis(500)),
    "busy_redis_p16": one(lambda: Redis(50, pipeline=16)),
    "busy_memcached": Row(lambda binaries: {"": [Memcached(binaries)]}),
    "busy_nginx_1k": one(lambda: Nginx("1k")),
    "busy_nginx_close": one(lambda: Nginx("1k", "-H", "Connection: close")),
    "prefork_connections": Row(lambda binaries: {"": [Prefork(binaries)]}),
    "busy_nginx_100k": one(lambda: Nginx("100k")),
    "busy_haproxy": one(Haproxy),
    "busy_pgbench_8": one(lambda: Pgbench(8)),
    "busy_pgbench_32": one(lambda: Pgbench(32)),
    "busy_mariadb_32": one(lambda: Mariadb(32)),
    "busy_dns": one(Dns),
    "busy_h2load": one(H2load),
    "busy_iperf_1": both_ways(1),
    "busy_iperf_8": both_ways(8),
    "busy_tcp_pingpong": one(lambda: Pingpong("--tcp")),
    "busy_udp_pingpong": one(Pingpong),
    "busy_four": Row(lambda binaries: {"": [Redis(50), Memcached(binaries), Nginx("1k"), Dns()]}),
}
ROWS.update({f"loaded_{name}": loaded(ROWS[f"busy_{name}"])
             for name in ("redis_50", "nginx_1k", "udp_pingpong", "tcp_pingpong", "iperf_8")})


class Run(typing.NamedTuple):
    figure: float
    p99: float  # microseconds, or None
    cpu: float  # microseconds for each request
    by_kernel: float  # packets and segments of the server's host that the kernel's TCP and UDP saw, for each request


def carried(net):
    counters = net.a.counters()
    return sum(counters[name] for name in ("TcpInSegs", "TcpOutSegs", "UdpInDatagrams", "UdpOutDatagrams"))


def devices(net):
    """(host, interface) of the network."""
    for host in (net.a, net.b, getattr(net, "c", None)):
        if host:
            links = netns.ip("-n", host.name, "-o", "link", "show", "type", "veth").splitlines()
            yield from ((host, link.split(": ")[1].split("@")[0], "prog/xdp" in link) for link in links)


def clean(net):
    """Nothing that an offloaded run left on the interfaces may slow the kernel's turn."""
    for host, dev, has_program in devices(net):
        if has_program:
            netns.ip("-n", host.name, "link", "set", "dev", dev, "xdpgeneric", "off")


def end(net):
    """The servers, by the signal that ends a service; one that does not end is a fault of its own."""
    for host in (net.a, net.b, getattr(net, "c", None)):
        if not host:
            continue
        alive = [process for process in host.processes if process.alive()]
        for process in alive:
            process.kill(signal.SIGTERM)
        for process in alive:
            process.wait(15.0)
        host.processes.clear()


def healthy(net):
    for process in net.a.processes:
        if process.popen.poll():
            raise AssertionError(f"{process} ended before its time:\n{process.text[-2000:]}")


class Way:
    """One of a row's ways to be measured, with its hosts."""

    def __init__(self, works, library, tmp):
        self.works = works
        self.library = library
        self.tmp = tmp
        self.nets = []

    def build(self):
        for work in self.works:
            net = work.hosts(self.library, self.tmp)
            self.nets.append(net)
            # A connection for each request takes a port for each; the kernel counts TIME_WAITs against its own side alone.
            for host in (net.a, net.b):
                host.run(["sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65000", "net.ipv4.tcp_max_tw_buckets=256"])
            work.prepare(net)

    def close(self):
        for net in self.nets:
            net.close()
        self.nets = []

    def run(self, side, loops):
        if not self.nets:
            self.build()
        for net, work in zip(self.nets, self.works):
            clean(net)
            work.serve(net, side)
        before = sum(carried(net) for net in self.nets)
        meter = machine.Meter(loops)
        clients = [work.ask(net, side) for net, work in zip(self.nets, self.works)]
        for work, client in zip(self.works, clients):
            if work.begins:
                client.wait_text(work.begins)
                meter = machine.Meter(loops)
        for client in clients:
            status = client.wait(PATIENCE)
            if status != 0:
                raise AssertionError(f"{client} exited with {status}:\n{client.text[-2000:]}")
        cpu = meter.spent()
        kernel = sum(carried(net) for net in self.nets) - before
        seen = [work.read(client.text, side) for work, client in zip(self.works, clients)]
        for net in self.nets:
            healthy(net)
            end(net)
        requests = sum(s.requests for s in seen)
        return Run(statistics.geometric_mean(s.figure for s in seen), seen[0].p99 if len(seen) == 1 else None,
                   cpu / requests * 1e6, kernel / requests)


class Measurement:
    """All rounds of a row."""

    def __init__(self, bench, name, rounds):
        self.bench = bench
        self.name = name
        self.rounds = rounds
        self.row = ROWS[name]
        self.ways = {way: Way(works, bench.library, bench.tmp) for way, works in self.row.works(bench.bin).items()}
        self.runs = {way: [{} for _ in range(rounds)] for way in self.ways}  # [round] -> {side: Run}
        self.failed = {}  # side -> why it was given up

    def missing(self):
        return [m for way in self.ways.values() for work in way.works for m in work.missing()]

    def _once(self, way, side, loops):
        """The Run, or None when the side fails twice."""
        for last in (False, True):
            try:
                return self.ways[way].run(side, loops)
            except (AssertionError, OSError) as error:
                self.ways[way].close()
                self.bench.progress("")
                print(f"{self.name}, {side.name}{' ' + way if way else ''}: {'given up' if last else 'once more'}: {error}",
                      file=sys.stderr)
                if last:
                    self.failed[side] = str(error).split("\n", 1)[0][:300]
        return None

    def _shown(self, n, side):
        medians = []
        for s in SIDES:
            figures = [r[s].figure for way in self.runs.values() for r in way if s in r]
            if figures:
                medians.append(f"{s.name} {statistics.median(figures):.4g}")
        self.bench.progress(f"{self.name}: round {n + 1} of {self.rounds}, {side.name} ... {', '.join(medians)}")

    def measure(self):
        order = list(SIDES)
        with contextlib.ExitStack() as stack:
            for way in self.ways.values():
                stack.callback(way.close)
            loops = stack.enter_context(machine.endless_loops()) if self.row.loaded else []
            for n in range(self.rounds):
                for side in [s for s in order if s not in self.failed]:
                    self._shown(n, side)
                    for way in self.ways:
                        run = self._once(way, side, loops) if side not in self.failed else None
                        if run:
                            self.runs[way][n][side] = run
                    if KERNEL in self.failed:
                        raise AssertionError(f"with kernel sockets alone: {self.failed[KERNEL]}")
                order.append(order.pop(0))
        return self._result()

    def _result(self):
        """Of several ways the one whose worst ratio is the lowest."""
        first = next(iter(self.ways.values())).works[0]
        results = {way: self._of_way(way, first) for way in self.ways}

        def worst(way):
            return min((results[way][k] for k in ("vs_kernel", "vs_kernel_server") if results[way][k] is not None), default=0)

        chosen = min(results, key=worst)
        row = results[chosen]
        if len(results) > 1:
            row["way"] = chosen
            row["other_ways"] = {way: r for way, r in results.items() if way != chosen}
        row["failed"] = {side.name: why for side, why in self.failed.items()}
        return row

    def _of_way(self, way, work):
        rounds = self.runs[way]

        def median(side, what):
            values = [getattr(r[side], what) for r in rounds if side in r and getattr(r[side], what) is not None]
            return statistics.median(values) if values else None

        def ratio(side, what, better_high=False):
            pairs = [(getattr(r[KERNEL], what), getattr(r[side], what)) for r in rounds if side in r and KERNEL in r]
            pairs = [(k, o) for k, o in pairs if k and o]
            return round(statistics.median(o / k if better_high else k / o for k, o in pairs), 3) if pairs else None

        def share(side):
            k, o = median(KERNEL, "by_kernel"), median(side, "by_kernel")
            return round(min(o / k, 1.0), 3) if k and o is not None else None

        def digits(value, places=3):
            return None if value is None else round(value, places)

        kernel = [r[KERNEL].figure for r in rounds if KERNEL in r]
        out = {"unit": work.unit, "floor": None, "vs_floor": None,
               "spread": digits((max(kernel) - min(kernel)) / statistics.median(kernel))}
        for side, name in ((KERNEL, "kernel"), (BOTH, "ours"), (SERVER, "server")):
            out[name] = digits(median(side, "figure"))
            out[f"cpu_{name}"] = digits(median(side, "cpu"))
            out[f"p99_{name}"] = digits(median(side, "p99"))
        for side, end_ in ((BOTH, ""), (SERVER, "_server")):
            out[f"vs_kernel{end_}"] = ratio(side, "figure", work.better_high)
            out[f"cpu_vs_kernel{end_}"] = ratio(side, "cpu")
            out[f"p99_vs_kernel{end_}"] = ratio(side, "p99")
            out[f"by_kernel{end_}"] = share(side)
        return out


def measure(bench, name, rounds=ROUNDS):
    """The row; Missing where a program is not there."""
    measurement = Measurement(bench, name, rounds)
    missing = measurement.missing()
    if missing:
        raise Missing("; ".join(sorted({f"{p} is not installed (Debian package {package})" for p, package in missing})) +
                      ": run scripts/deps.sh bench")
    return measurement.measure()
