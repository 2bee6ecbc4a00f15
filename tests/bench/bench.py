#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""make bench: kernel sockets, this library and the bare AF_XDP floor, in turns on one veth pair.

    net.b  [ cpu 1: client, sender ] ---- veth ---- [ cpu 0: server, receiver ]  net.a

Here are the rows of pinned programs: rounds of (kernel, ours, floor) until a name's time is over. people.py has the rows "as
people run it". What is written is the median of each side, and the median of the rounds' ratios: a machine that is slow for a
while is slow for both. Ratios are above 1 when this library is better. Each row has hosts of its own, so that nothing that one
leaves behind (ports, connections in TIME_WAIT) meets the next. All rows together take less than 25 minutes.

Results go to <build>/bench/results.json (names that were not run keep what they had), results.md, latency.png and latency.svg;
--readme puts them into docs/bench.md, docs/latency.svg and README.md, which has a few of the rows.
"""

import argparse
import fnmatch
import itertools
import json
import pathlib
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))

import loss  # noqa: E402 (the path is made above)
import netns  # noqa: E402
import people  # noqa: E402
import report  # noqa: E402
from plan import Plan  # noqa: E402
from report import goals  # noqa: E402

PORT = 11111


class Bench:
    """What all names share: the namespaces, the binaries, the progress line."""

    def __init__(self, build, tmp, plan):
        self.plan = plan
        self.budget = 0.0  # seconds for the name under way: no round is begun that would end later
        self.bin = build / "bench" / "bin"
        self.tmp = tmp
        self.library = netns.Library(build, sanitize=False)
        self.net = None
        self.distribution = {}  # (name, side) -> [{percentile: microseconds}, one a round]

    def new_hosts(self):
        self.close()
        self.net = netns.Net(self.library, self.tmp)

    def close(self):
        if self.net:
            self.net.close()
        self.net = None

    def progress(self, text):
        if text:
            text = f"{self.plan} {text}"
        if sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)

    def rounds(self, name, sides, at_most=7):
        """Calls each side's function in turns; {side: [figure, one a round]}. Every round starts with another side."""
        figures = {side: [] for side in sides}
        order = list(sides)
        end = time.monotonic() + self.budget
        longest = 0.0
        for n in range(at_most):
            begun = time.monotonic()
            if n and begun + longest > end:
                break
            for side in order:
                shown = ", ".join(f"{s} {statistics.median(f):.4g}" for s, f in figures.items() if f)
                self.progress(f"{name}: round {n + 1}, {side} ... {shown}")
                figures[side].append(sides[side]())
            order.append(order.pop(0))
            longest = max(longest, time.monotonic() - begun)
        return figures

    def plain(self):
        """Nothing that an offloaded run left on the interfaces may slow the kernel's turn."""
        for host in (self.net.a, self.net.b):
            if loss.attached(host):
                netns.ip("-n", host.name, "link", "set", "dev", host.dev, "xdpgeneric", "off")

    # --- latency

    def sockperf(self, name, side, preload, options=()):
        """Half a round trip in microseconds, the median."""
        a, b = self.net.a, self.net.b
        if not preload:
            self.plain()
        server = a.popen(["sockperf", "server", "-i", a.ip4, "-p", PORT, *options], preload, cpu=0)
        a.wait_bound(PORT, "tcp" if "--tcp" in options else "udp")
        client = b.run(["sockperf", "ping-pong", "-i", a.ip4, "-p", PORT, "-m", 64, "-t", 1, *options], preload, cpu=1)
        server.stop(signal.SIGINT)
        seen = {float(p): float(us) for p, us in re.findall(r"percentile +([\d.]+) = +([\d.]+)", client.text)}
        if 50.0 not in seen:
            raise AssertionError(f"sockperf printed no median:\n{client.text}")
        self.distribution.setdefault((name, side), []).append(seen)
        return seen[50.0]

    def sockperf_messages(self, preload):
        """Messages a second of one TCP sender, 100 bytes each."""
        a, b = self.net.a, self.net.b
        if not preload:
            self.plain()
        server = a.popen(["sockperf", "server", "--tcp", "-i", a.ip4, "-p", PORT], preload, cpu=0)
        a.wait_bound(PORT, "tcp")
        client = b.run(["sockperf", "throughput", "--tcp", "-i", a.ip4, "-p", PORT, "-m", 100, "-t", 1], preload, cpu=1)
        server.stop(signal.SIGINT)
        return float(re.search(r"Message Rate is (\d+)", client.text).group(1))

    def connections(self, preload):
        """Connections a second: one request each."""
        a, b = self.net.a, self.net.b
        # The rounds share the namespaces, and a kernel client that looks for a port among the TIME_WAITs of the rounds before
        # becomes ten times slower. The kernel keeps few of them here, which helps its side alone. The usual 28,000 ports are
        # less than a second's connections on a fast machine.
        for host in (a, b):
            host.run(["sysctl", "-qw", "net.ipv4.tcp_max_tw_buckets=256", "net.ipv4.ip_local_port_range=1024 65000"])
        if not preload:
            self.plain()
        server = a.popen([self.bin / "tcp_conns", "server", a.ip4, PORT], preload, cpu=0)
        a.wait_bound(PORT, "tcp")
        client = b.run([self.bin / "tcp_conns", "client", a.ip4, PORT, 1.0], preload, cpu=1)
        server.stop()
        return float(re.search(r"rate (\d+)", client.text).group(1))

    def redis(self, preload, test):
        """Requests a second, 50 clients, no pipeline."""
        a, b = self.net.a, self.net.b
        if not preload:
            self.plain()
        server = a.popen(["redis-server", "--port", PORT, "--bind", a.ip4, "--save", "", "--protected-mode", "no"],
                         preload, cpu=0)
        a.wait_bound(PORT, "tcp")
        client = b.run(["redis-benchmark", "-h", a.ip4, "-p", PORT, "-n", 30000, "-c", 50, "-t", test, "--csv"], preload,
                       cpu=1, timeout=60)
        server.stop()
        return float(re.search(r'"[GS]ET[^"]*","([\d.]+)"', client.text).group(1))

    def bulk(self, sender_ours, receiver_ours):
        """
        Gbit/s of one stream. Both programs run before those of other schedulers' classes, as in loss.py: a round trip takes
        30 us, and an end that waits some milliseconds for a processor stops the other one, too.
        """
        a, b = self.net.a, self.net.b
        self.plain()
        server = a.popen([*loss.FIRST, "iperf3", "-s", "-1", "-B", a.ip4], receiver_ours, cpu=0)
        a.wait_bound(5201, "tcp")
        client = b.run([*loss.FIRST, "iperf3", "-c", a.ip4, "-t", 2, "-O", 0.3, "-J"], sender_ours, cpu=1)
        server.stop()
        text = client.text[client.text.index("{\n"):]
        return json.loads(text)["end"]["sum_received"]["bits_per_second"] / 1e9

    def floor_side(self, measure):
        """{} where the floor was not built."""
        return {"floor": measure} if (self.bin / "floor").exists() else {}

    def floor(self, passive, active, *options):
        """Runs both ends of the bare AF_XDP program; what each prints as JSON."""
        a, b = self.net.a, self.net.b
        self.plain()
        server = a.popen([self.bin / "floor", a.dev, passive, "-c", 0, "-s", 0.5])
        netns.wait_for(lambda: loss.attached(a) or not server.alive(), what="the floor's program on the interface")
        client = b.run([self.bin / "floor", b.dev, active, "-c", 1, *options])
        server.stop(signal.SIGINT)
        return tuple(json.loads(p.text.strip().splitlines()[-1]) for p in (server, client))

    def floor_pingpong(self, name):
        _, client = self.floor("server", "client", "-n", 200000)
        self.distribution.setdefault((name, "floor"), []).append(
            {float(p): us for p, us in client["percentiles"].items()})
        return client["median"]

    def floor_send(self, batch):
        receiver, _ = self.floor("recv", "send", "-s", 1.5, "-b", batch)
        return receiver["pps"]

    def extra_pingpong(self):
        """Half a round trip by the Extra API."""
        a, b = self.net.a, self.net.b
        server = a.popen([self.bin / "extra_pingpong", "server", a.ip4, PORT], True, cpu=0)
        a.wait_bound(PORT)
        done = json.loads(b.run([self.bin / "extra_pingpong", "client", a.ip4, PORT, 100000], True, cpu=1).text.splitlines()[-1])
        server.stop()
        if done["copied"]:
            raise AssertionError(f"extra_pingpong: {done['copied']} answers came by the kernel")
        return done["median"]

    # --- one way

    def blast(self, preload, batch):
        """Messages received in a second."""
        a, b = self.net.a, self.net.b
        if not preload:
            self.plain()
        blaster = self.bin / "udp_blast"
        receiver = a.popen([blaster, "recv", a.ip4, PORT, 1.5, batch], preload, cpu=0)
        a.wait_bound(PORT)
        sender = b.popen([blaster, "send", a.ip4, PORT, 2.2, batch, 64], preload, cpu=1)
        if receiver.wait() != 0 or sender.wait() != 0:
            raise AssertionError(f"udp_blast failed:\n{receiver.text}{sender.text}")
        return float(receiver.wait_text(r"rate (\d+)").group(1))


def ratio(better_high, ours, other):
    """The median of the rounds' ratios, above 1 when ours is better; None without the other side."""
    if not other:
        return None
    return statistics.median((o / x if better_high else x / o) for o, x in zip(ours, other))


def result(unit, figures, better_high, digits=3):
    def median(side):
        return round(statistics.median(figures[side]), digits) if figures.get(side) else None

    def rounded(r):
        return None if r is None else round(r, 3)

    def spread(values):
        """By how much of its median the kernel's side moved, which is the machine's own state."""
        return (max(values) - min(values)) / statistics.median(values) if values else None

    return {
        "unit": unit,
        "ours": median("ours"),
        "kernel": median("kernel"),
        "floor": median("floor"),
        "vs_kernel": rounded(ratio(better_high, figures["ours"], figures.get("kernel"))),
        "vs_floor": rounded(ratio(better_high, figures["ours"], figures.get("floor"))),
        "spread": rounded(spread(figures.get("kernel"))),
    }


def udp_pingpong(bench):
    name = "udp_pingpong"
    return result("microseconds", bench.rounds(name, {
        "kernel": lambda: bench.sockperf(name, "kernel", False),
        "ours": lambda: bench.sockperf(name, "ours", True),
        **bench.floor_side(lambda: bench.floor_pingpong(name)),
    }), better_high=False)


def udp_pingpong_spin(bench):
    name = "udp_pingpong_spin"
    return result("microseconds", bench.rounds(name, {
        "kernel": lambda: bench.sockperf(name, "kernel", False, ["--nonblocked"]),
        "ours": lambda: bench.sockperf(name, "ours", True),
    }), better_high=False)


def extra_pingpong(bench):
    """A callback that answers, and an answer that is not copied."""
    name = "extra_pingpong"
    return result("microseconds", bench.rounds(name, {
        "kernel": lambda: bench.sockperf(name, "kernel", False, ["--nonblocked"]),
        "ours": bench.extra_pingpong,
        **bench.floor_side(lambda: bench.floor_pingpong(name)),
    }), better_high=False)


def udp_send(bench):
    return result("messages/s", bench.rounds("udp_send", {
        "kernel": lambda: bench.blast(False, 1),
        "ours": lambda: bench.blast(True, 1),
        **bench.floor_side(lambda: bench.floor_send(1)),
    }), better_high=True, digits=0)


def udp_sendmmsg(bench):
    return result("messages/s", bench.rounds("udp_sendmmsg", {
        "kernel": lambda: bench.blast(False, 32),
        "ours": lambda: bench.blast(True, 32),
        **bench.floor_side(lambda: bench.floor_send(32)),
    }), better_high=True, digits=0)


def tcp_pingpong(bench):
    name = "tcp_pingpong"
    return result("microseconds", bench.rounds(name, {
        "kernel": lambda: bench.sockperf(name, "kernel", False, ["--tcp"]),
        "ours": lambda: bench.sockperf(name, "ours", True, ["--tcp"]),
    }), better_high=False)


def two_sides(name, unit, measure):
    return lambda bench: result(unit, bench.rounds(name, {
        "kernel": lambda: measure(bench, False), "ours": lambda: measure(bench, True)}), better_high=True, digits=3)


tcp_messages = two_sides("tcp_messages", "messages/s", lambda bench, ours: bench.sockperf_messages(ours))
tcp_connections = two_sides("tcp_connections", "connections/s", lambda bench, ours: bench.connections(ours))
redis_get = two_sides("redis_get", "requests/s", lambda bench, ours: bench.redis(ours, "get"))
redis_set = two_sides("redis_set", "requests/s", lambda bench, ours: bench.redis(ours, "set"))
tcp_bulk_send = two_sides("tcp_bulk_send", "Gbit/s", lambda bench, ours: bench.bulk(ours, False))
tcp_bulk_receive = two_sides("tcp_bulk_receive", "Gbit/s", lambda bench, ours: bench.bulk(False, ours))


def tcp_loss(bench):
    """
    Goodput at 1 % loss and 10 ms: tests/bench/loss.py has the other losses and round trips. Which of its segments are lost
    makes a stream some 20 % faster or slower; so many of them side by side that three rounds tell the two sides apart.
    """
    net = netns.LossyNet(bench.library, bench.net.tmp)
    seeds = {False: itertools.count(1), True: itertools.count(1)}

    def side(ours):
        return loss.goodput(net, 10, 1, next(seeds[ours]), 4.0, ours, ours, streams=24)

    try:
        return result("Mbit/s", bench.rounds("tcp_loss", {"kernel": lambda: side(False), "ours": lambda: side(True)}),
                      better_high=True)
    finally:
        net.close()


def bystander(bench):
    """iperf3 between kernel programs; "ours" is with an offloaded process on the receiving interface."""
    a, b = bench.net.a, bench.net.b

    def measure(offloaded):
        bench.plain()
        sitting = a.popen([bench.bin / "udp_blast", "idle", a.ip4, PORT, 30], True) if offloaded else None
        if sitting:
            a.wait_bound(PORT)
        server = a.popen(["iperf3", "-s", "-1", "-B", a.ip4], cpu=0)
        a.wait_bound(5201, "tcp")
        client = b.run(["iperf3", "-c", a.ip4, "-t", 2, "-O", 0.3, "-J"], cpu=1)
        server.stop()
        if sitting:
            sitting.stop()
        return json.loads(client.text)["end"]["sum_received"]["bits_per_second"] / 1e9

    return result("Gbit/s", bench.rounds("bystander", {
        "kernel": lambda: measure(False),
        "ours": lambda: measure(True),
    }), better_high=True)


def rss_idle(bench):
    """MiB that the library adds to a process with one idle bound UDP socket, huge pages included."""
    a = bench.net.a

    def resident(preload):
        idle = a.popen([bench.bin / "udp_blast", "idle", a.ip4, PORT, 30], preload)
        a.wait_bound(PORT)
        time.sleep(1.0)  # what its internal thread touches belongs to it
        status = pathlib.Path(f"/proc/{idle.pid}/status").read_text()
        idle.stop()
        kib = [int(k) for k in re.findall(r"^(?:VmRSS|HugetlbPages):\s+(\d+) kB", status, re.M)]
        return sum(kib) / 1024

    figures = bench.rounds("rss_idle", {"without": lambda: resident(False), "with": lambda: resident(True)}, 3)
    added = [w - o for w, o in zip(figures["with"], figures["without"])]
    return result("MiB", {"ours": added}, better_high=False)


def passthrough(bench):
    """Nanoseconds that the library adds to a read() and a write() of one byte on a pipe."""
    a = bench.net.a

    def pair(preload):
        done = a.run([bench.bin / "passthrough"], preload, cpu=1)
        found = re.search(r"([\d.]+) *ns", done.text)
        if not found:
            raise AssertionError(f"passthrough printed no figure:\n{done.text}")
        return float(found.group(1))

    figures = bench.rounds("passthrough", {"without": lambda: pair(False), "with": lambda: pair(True)}, 7)
    added = [w - o for w, o in zip(figures["with"], figures["without"])]
    return result("ns", {"ours": added}, better_high=False, digits=1)


def mlx5(what, striding=False):
    """Nanoseconds, and instructions where valgrind is, of one call on mlx5 queues in memory (no card is needed): of 64 bytes unless the name says."""
    env = {"VMA_RING_TYPE": "mlx5", "VMA_THREAD_MODE": "0", "VMA_TRACELEVEL": "1", "VMA_STRQ": int(striding),
           "VMA_SOCKETXTREME": int("xtreme" in what)}

    def run(bench, calls, tool=()):
        a, b = bench.net.a, bench.net.b
        done = a.run([*tool, bench.bin / "mlx5", what, a.ip4, b.ip4, calls], env=env, cpu=1, timeout=120.0)
        return done.text, json.loads(next(line for line in done.text.splitlines() if line.startswith("{")))

    def row(bench):
        name = f"mlx5_{what}" + "_strq" * striding
        figures = bench.rounds(name, {"ours": lambda: run(bench, 100000)[1]["ns"]}, 5)
        out = result("ns", figures, better_high=False, digits=1)
        out["instructions"] = None
        if shutil.which("valgrind"):
            # From the entry point on. Of TCP's there are other calls.
            entry = {"udp_send": "sendto", "udp_sendmmsg": "sendmmsg", "udp_receive": "recvfrom",
                     "udp_send_1400": "sendto", "udp_receive_1400": "recvfrom"}.get(what, "measured_call")
            tool = ("valgrind", "--tool=callgrind", f"--toggle-collect={entry}", "--callgrind-out-file=/dev/null")
            text, seen = run(bench, 4000, tool)
            for _ in range(4):
                # A change in the network costs one call another look at route and neighbour.
                if not seen["changed"]:
                    break
                text, seen = run(bench, 4000, tool)
            out["instructions"] = round(int(re.search(r"Collected : (\d+)", text).group(1)) / seen["calls"], 1)
        return out

    return row


def tcp_engine(bench, connections, segments):
    done = bench.net.a.run([bench.bin / "tcp_engine", connections, segments], cpu=1)
    return json.loads(done.text.strip().splitlines()[-1])


def instructions(bench, connections, segments=20000):
    """Of one segment, counted by callgrind: in turns over all connections and over one, together."""
    done = bench.net.a.run(["valgrind", "--tool=callgrind", "--toggle-collect=run_batch", "--callgrind-out-file=/dev/null",
                            bench.bin / "tcp_engine", connections, segments], cpu=1)
    runs = 1 if connections == 1 else 2
    return int(re.search(r"Collected : (\d+)", done.text).group(1)) / segments / runs


def tcp_segment(bench):
    """Nanoseconds of the engine for one segment in order; growth: from one connection to 1,000,000 of which one is busy."""
    counts = (1, 1000, 1000000)
    seen = {n: [] for n in counts}

    def side(n):
        seen[n].append(tcp_engine(bench, n, 200000))
        return seen[n][-1]["ns_one"]

    bench.rounds("tcp_segment", {str(n): (lambda n=n: side(n)) for n in counts}, 3)

    def median(n, key):
        return statistics.median(f[key] for f in seen[n])

    counted = {n: round(instructions(bench, n)) for n in (1, 1000, 100000)} if shutil.which("valgrind") else {}
    row = result("ns", {"ours": [median(1, "ns_one")]}, better_high=False, digits=1)
    row["one_busy"] = {str(n): round(median(n, "ns_one"), 1) for n in counts}
    row["all_busy"] = {str(n): round(median(n, "ns_all"), 1) for n in counts}
    row["instructions"] = {str(n): i for n, i in counted.items()}
    row["growth"] = round(median(1000000, "ns_one") / median(1, "ns_one"), 2)
    row["growth_instructions"] = round(max(counted.values()) / min(counted.values()), 2) if counted else None
    return row


# Of a connection in the tables that are not the allocator's: by descriptor (vfd.c) and by object (tcp.c).
TABLES = 8 + 8


def tcp_memory(bench):
    """User-space bytes of one idle established connection that an epoll set watches: engine, socket, tables, allocator's headers."""
    a, b = bench.net.a, bench.net.b
    first, more = 2000, 10000
    bench.progress("tcp_memory: 12,000 connections, which rest")
    server = a.popen([bench.bin / "tcp_idle", "server", a.ip4, PORT, first, more], True, cpu=0)
    a.wait_bound(PORT, "tcp")
    client = b.popen([bench.bin / "tcp_idle", "client", a.ip4, PORT, first + more], False, cpu=1)
    server.wait(120)
    client.stop()
    found = re.search(r"allocated ([\d.]+) resident ([\d.]+)", server.text)
    if not found:
        raise AssertionError(f"tcp_idle printed no figure:\n{server.text}")
    row = result("bytes", {"ours": [float(found.group(1)) + TABLES]}, better_high=False, digits=0)
    row["resident"] = float(found.group(2))
    row["engine"] = tcp_engine(bench, 100000, 16)["bytes"]
    return row


NAMES = {f.__name__: f for f in (udp_pingpong, udp_pingpong_spin, extra_pingpong, udp_send, udp_sendmmsg, bystander, rss_idle,
                                 passthrough, tcp_segment, tcp_memory, tcp_pingpong)}
NAMES.update(tcp_messages=tcp_messages, tcp_connections=tcp_connections, redis_get=redis_get, redis_set=redis_set,
             tcp_bulk_send=tcp_bulk_send, tcp_bulk_receive=tcp_bulk_receive, tcp_loss=tcp_loss)
NAMES.update({f"mlx5_{what}": mlx5(what) for what in (
    "udp_send", "udp_send_1400", "udp_sendmmsg", "udp_receive", "udp_receive_1400", "udp_zcopy", "udp_zcopy_1400", "udp_callback", "udp_xtreme",
    "udp_loop", "udp_loop_xtreme", "tcp_send", "tcp_send_1400", "tcp_receive", "tcp_receive_1400", "tcp_xtreme")})
NAMES.update({f"mlx5_{what}_strq": mlx5(what, striding=True) for what in ("udp_receive", "tcp_receive")})


def measured(bench, name):
    """The row of that name, or None. On a busy machine a program may get no time within the seconds that it is given."""
    for left in (2, 1, 0):
        try:
            bench.new_hosts()
            return NAMES[name](bench)
        except AssertionError as error:
            bench.progress("")
            print(f"{name}: not measured{', once more' if left else ''}: {error}", file=sys.stderr)
    return None


def measured_as_people_run_it(bench, name, rounds):
    bench.close()
    try:
        return people.measure(bench, name, rounds)
    except (AssertionError, people.Missing) as error:
        bench.progress("")
        print(f"{name}: not measured: {error}", file=sys.stderr)
    return None


def chosen(only):
    """The names that are meant by "name,gl*b", in the order of the bench, and the words that mean none."""
    every = [*NAMES, *people.ROWS]
    words = [w for w in only.split(",") if w] or ["*"]
    return ([n for n in every if any(fnmatch.fnmatchcase(n, w) for w in words)],
            [w for w in words if not fnmatch.filter(every, w)])


def measure_all(bench, names, results, options, file):
    """(goals missed, rows that failed); each row is written as soon as it is there."""
    missed, failed = [], []
    for name in names:
        begun = time.monotonic()
        with bench.plan.row(name) as budget:
            bench.budget = min(budget, options.budget)
            row = measured_as_people_run_it(bench, name, options.rounds) if name in people.ROWS else measured(bench, name)
        if not row or row.get("failed"):
            failed.append(name)
        if not row:
            continue
        results[name] = row
        ordered = {n: results[n] for n in (*NAMES, *people.ROWS, *results) if n in results}
        file.write_text(json.dumps(ordered, indent=2) + "\n")
        bench.progress("")
        print(report.line(name, row, time.monotonic() - begun), flush=True)
        missed += [name for _, ok in goals(name, row) if not ok]
    return missed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", default="", help="names or patterns, separated by commas")
    parser.add_argument("--out", type=pathlib.Path, help="where the results go: <build>/bench")
    parser.add_argument("--budget", type=float, default=Plan.MOST, help="seconds for each name of a pinned row (%(default)g)")
    parser.add_argument("--rounds", type=int, default=people.ROUNDS, help="of each row as people run it (%(default)d)")
    parser.add_argument("--readme", action="store_true", help="update README.md, docs/bench.md and docs/latency.svg")
    options = parser.parse_args()
    names, unknown = chosen(options.only)
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join([*NAMES, *people.ROWS])}")
    build = options.build.resolve()
    folder = options.out or build / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    # Ctrl-C and kill alike end in the finally below.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="vma-bench-") as tmp:
        pathlib.Path(tmp).chmod(0o1777)  # some servers become another user
        bench = Bench(build, pathlib.Path(tmp), Plan(names, people.ROWS, folder / "times.json"))
        try:
            missed, failed = measure_all(bench, names, results, options, file)
        except KeyboardInterrupt:
            print("\ninterrupted", file=sys.stderr)
            return 130
        finally:
            bench.close()
        results = json.loads(file.read_text()) if file.exists() else {}
        (folder / "results.md").write_text(report.table(results) + "\n" + report.people_table(results))
        report.plot(bench.distribution, folder)
    if options.readme:
        report.write_readme(results, folder)
    print(f"\nwritten: {file}, in {bench.plan.minutes()}" + (f"; not reached: {', '.join(sorted(set(missed)))}" if missed else ""))
    if failed:
        print(f"not measured, or not all of it: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
