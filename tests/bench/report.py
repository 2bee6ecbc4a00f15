# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What becomes of the results: goals, the tables of docs/bench.md and README.md, the plot."""

import pathlib
import re
import shutil
import statistics

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERCENTILES = (25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99)

# What the project set itself: field, least or most, value.
TO_REACH = {
    "udp_pingpong": (("vs_kernel", ">=", 3.5), ("vs_floor", ">=", 0.87)),
    "udp_pingpong_spin": (("vs_kernel", ">=", 1.5),),
    "udp_send": (("vs_kernel", ">=", 2.5),),
    "udp_sendmmsg": (("vs_kernel", ">=", 4.0), ("vs_floor", ">=", 0.9)),
    "bystander": (("vs_kernel", ">=", 0.8),),
    "rss_idle": (("ours", "<=", 24.0),),
    "passthrough": (("ours", "<=", 30.0),),
    "tcp_segment": (("growth", "<=", 2.0), ("growth_instructions", "<=", 2.0)),
    "tcp_memory": (("ours", "<=", 1536.0),),
    "tcp_pingpong": (("vs_kernel", ">=", 3.5),),
    "tcp_messages": (("vs_kernel", ">=", 3.0),),
    "tcp_connections": (("vs_kernel", ">=", 2.0),),
    "redis_get": (("vs_kernel", ">=", 1.5),),
    "redis_set": (("vs_kernel", ">=", 1.5),),
    "tcp_bulk_send": (("vs_kernel", ">=", 0.9),),
    "tcp_bulk_receive": (("vs_kernel", ">=", 1.0),),
    "tcp_loss": (("vs_kernel", ">=", 1.0),),
    "extra_pingpong": (("vs_floor", ">=", 0.97),),
    "mlx5_udp_send": (("instructions", "<=", 250.0),),
    "mlx5_udp_receive": (("instructions", "<=", 300.0),),
}


def never_slower(least):
    """Of a row as people run it: both sides preloaded at least so much, the server alone no slower, no more CPU time in either."""
    return (("vs_kernel", ">=", least), ("vs_kernel_server", ">=", 1.0), ("cpu_vs_kernel", ">=", 1.0),
            ("cpu_vs_kernel_server", ">=", 1.0))


CLEARLY_FASTER = ("busy_redis_50", "busy_memcached", "busy_dns", "prefork_connections")
TAIL = (("p99_vs_kernel", ">=", 1.0), ("p99_vs_kernel_server", ">=", 1.0))

WHAT = {
    "udp_pingpong": "half a round trip, 64 B, median; blocking kernel sockets",
    "udp_pingpong_spin": "the same; kernel sockets that spin (`--nonblocked`)",
    "udp_send": "64 B, one `sendto()` a message, received",
    "udp_sendmmsg": "64 B, `sendmmsg()` of 32, received",
    "extra_pingpong": "the same by the Extra API: a callback answers, the answer is not copied",
    "bystander": "iperf3 of kernel programs beside an offloaded process",
    "rss_idle": "resident memory added by the library, one idle socket",
    "tcp_segment": "the TCP engine, one segment in order; to 1,000,000 connections",
    "tcp_memory": "one idle connection, all told in user space",
    "passthrough": "added to a `read()` + `write()` on a pipe",
    "tcp_pingpong": "half a round trip over TCP, 64 B, median; blocking kernel sockets",
    "tcp_messages": "TCP, messages of 100 B, `sockperf throughput`",
    "tcp_connections": "connect, one request, close",
    "redis_get": "redis-benchmark, 50 clients, no pipeline",
    "redis_set": "the same, SET",
    "tcp_bulk_send": "one stream to a kernel peer, MTU 1500 (iperf3)",
    "tcp_bulk_receive": "one stream from a kernel peer",
    "tcp_loss": "goodput of 24 streams, CUBIC, 1 % loss, 10 ms round trip",
    "mlx5_udp_send": "one `sendto()` of 64 B, mlx5 queues in memory",
    "mlx5_udp_send_1400": "the same of 1,400 B",
    "mlx5_udp_sendmmsg": "`sendmmsg()` of 64 of them, all together",
    "mlx5_udp_receive": "one `recvfrom()` of 64 B that finds it there",
    "mlx5_udp_receive_1400": "the same of 1,400 B",
    "mlx5_udp_zcopy": "one `recvfrom_zcopy()` of 64 B and its `free_packets()`",
    "mlx5_udp_zcopy_1400": "the same of 1,400 B",
    "mlx5_udp_callback": "64 datagrams of 64 B that a callback refuses",
    "mlx5_udp_loop": "a round of 16 sockets with a datagram each: `epoll_wait()` and 16 `recv()`",
    "mlx5_udp_loop_xtreme": "the same by one `socketxtreme_poll()`, all given back",
    "mlx5_udp_xtreme": "one `socketxtreme_poll()` that tells of a datagram of 64 B, which is given back",
    "mlx5_tcp_xtreme": "the same of a segment of 64 B",
    "mlx5_tcp_send": "one `send()` of 64 B over TCP, mlx5 queues in memory",
    "mlx5_tcp_send_1400": "the same of 1,400 B",
    "mlx5_tcp_receive": "one `recv()` of 64 B that finds it there",
    "mlx5_tcp_receive_1400": "the same of 1,400 B",
    "mlx5_udp_receive_strq": "the same from a striding queue (`VMA_STRQ=1`)",
    "mlx5_tcp_receive_strq": "the same from a striding queue (`VMA_STRQ=1`)",
    "busy_redis_1": "redis GET, 1 client",
    "busy_redis_50": "redis GET, 50 clients",
    "busy_redis_500": "redis GET, 500 clients",
    "busy_redis_p16": "redis GET, 50 clients, pipeline of 16",
    "busy_memcached": "memcached GET of 100 B, 2 threads and 50 connections",
    "busy_nginx_1k": "nginx with 2 workers, 1 KiB, wrk with 50 connections",
    "busy_nginx_close": "the same, a connection for each request",
    "prefork_connections": "connect, one request, close; 2 forked workers, 4 clients",
    "busy_nginx_100k": "nginx, 100 KiB",
    "busy_haproxy": "haproxy in front of nginx, 1 KiB",
    "busy_pgbench_8": "PostgreSQL, `pgbench -S`, 8 clients",
    "busy_pgbench_32": "the same, 32 clients",
    "busy_mariadb_32": "MariaDB, sysbench's point selects, 32 threads",
    "busy_dns": "unbound, dnsperf with 100 queries under way",
    "busy_h2load": "nginx over HTTP/2, h2load with 50 connections of 10 streams",
    "busy_iperf_1": "iperf3, one stream, the worse way",
    "busy_iperf_8": "iperf3, 8 streams, the worse way",
    "busy_tcp_pingpong": "half a round trip over TCP, 64 B, median",
    "busy_udp_pingpong": "half a round trip over UDP, 64 B, median",
    "busy_four": "redis, memcached, nginx and unbound at once, geometric mean",
    "loaded_redis_50": "redis GET, 50 clients, beside endless loops",
    "loaded_nginx_1k": "nginx, 1 KiB, beside endless loops",
    "loaded_udp_pingpong": "half a round trip over UDP, beside endless loops",
    "loaded_tcp_pingpong": "half a round trip over TCP, beside endless loops",
    "loaded_iperf_8": "iperf3, 8 streams, the worse way, beside endless loops",
}


def to_reach(name, row):
    if not as_people_run_it(row):
        return TO_REACH.get(name, ())
    goals_ = never_slower(1.5 if name in CLEARLY_FASTER else 1.0)
    return goals_ + TAIL if name.startswith("loaded_") and row["p99_kernel"] is not None else goals_


def as_people_run_it(row):
    return "server" in row


def goals(name, row):
    """[("vs_kernel >= 3.5", reached)]"""
    return [(f"{field} {op} {value:g}",
             row[field] is not None and (row[field] >= value if op == ">=" else row[field] <= value))
            for field, op, value in to_reach(name, row)]


def cell(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def times(value):
    """A ratio in a table."""
    return "–" if value is None else f"**{value:.2f}**" if value >= 0.095 else f"**{value:.1g}**"


def percent(value):
    return "–" if value is None else f"{100 * value:.0f} %"


def line(name, row, seconds):
    """What is printed when a row is done."""
    verdict = ", ".join(f"{text}: {'reached' if ok else 'MISSED'}" for text, ok in goals(name, row))
    moved = "" if row["spread"] is None else f"kernel's side moved by {percent(row['spread'])}"
    if not as_people_run_it(row):
        return (f"{name:18} {row['unit']:13} kernel {cell(row['kernel']):>10}  ours {cell(row['ours']):>10}  "
                f"floor {cell(row['floor']):>10}  vs kernel {cell(row['vs_kernel']):>6}  "
                f"vs floor {cell(row['vs_floor']):>6}  {moved}  [{verdict}] {seconds:.0f} s")
    lines = [f"{name:18} {row['unit'] + (', ' + row['way'] if 'way' in row else ''):14} kernel {cell(row['kernel']):>10}  "
             f"{moved}  [{verdict}] {seconds:.0f} s"]
    for side, end, words in (("ours", "", "both"), ("server", "_server", "server")):
        if row[side] is None:
            lines.append(f"{'':18} {words:14} failed: {row['failed'].get(words, 'no figure')}")
            continue
        lines.append(f"{'':18} {words:14} {'':6} {cell(row[side]):>10}  vs kernel {cell(row['vs_kernel' + end]):>6}  "
                     f"CPU a request {cell(row['cpu_kernel'])} / {cell(row['cpu_' + side])} us, {cell(row['cpu_vs_kernel' + end])}  "
                     f"p99 {cell(row['p99_kernel'])} / {cell(row['p99_' + side])} us, {cell(row['p99_vs_kernel' + end])}  "
                     f"by the kernel {percent(row['by_kernel' + end])}")
    return "\n".join(lines)


def table(results):
    """The table of docs/bench.md: the pinned rows; "" when there are none."""
    lines = ["| name | what | unit | kernel | libvma.so | floor | vs kernel | vs floor |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, row in results.items():
        if not as_people_run_it(row):
            lines.append("| " + " | ".join([
                name, WHAT.get(name, ""), row["unit"], *(cell(row[k]) for k in ("kernel", "ours", "floor")),
                times(row["vs_kernel"]), times(row["vs_floor"])]) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def people_table(results):
    """The second table of docs/bench.md: the rows as people run it; "" when there are none."""
    lines = ["| name | what | unit | kernel | both | server | both vs kernel | server vs kernel | CPU: both | CPU: server | "
             "p99: both | p99: server | kernel moved |",
             "| --- | --- | --- " + "| ---: " * 10 + "|"]
    for name, row in results.items():
        if as_people_run_it(row):
            ratios = (f"{what}_vs_kernel{end}".lstrip("_") for what in ("", "cpu", "p99") for end in ("", "_server"))
            lines.append("| " + " | ".join([
                name, WHAT.get(name, ""), row["unit"], *(cell(row[k]) for k in ("kernel", "ours", "server")),
                *(times(row[k]) for k in ratios), percent(row["spread"])]) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def plot(distribution, folder):
    """latency.png and latency.svg: half a round trip over the percentile, both scales logarithmic."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = {("udp_pingpong", "kernel"): "kernel sockets, blocking",
              ("udp_pingpong_spin", "kernel"): "kernel sockets, spinning",
              ("udp_pingpong", "ours"): "libvma.so",
              ("udp_pingpong", "floor"): "bare AF_XDP"}
    curves = {k: v for k, v in labels.items() if k in distribution}
    if ("udp_pingpong", "ours") not in curves:
        return
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
    for key, label in curves.items():
        points = [(p, [d[p] for d in distribution[key] if p in d]) for p in PERCENTILES]
        points = [(100 / (100 - p), statistics.median(us)) for p, us in points if us]
        axes.plot(*zip(*points), marker="o", markersize=4, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([100 / (100 - p) for p in PERCENTILES], [f"{p:g}" for p in PERCENTILES])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%g"))
    axes.set_xlabel("percentile")
    axes.set_ylabel("half a round trip, microseconds")
    axes.set_title("sockperf ping-pong, 64-byte UDP messages over a veth pair")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(folder / "latency.png", dpi=150)
    figure.savefig(folder / "latency.svg")


# The rows that README.md has, in a newcomer's words.
HEADLINES = {
    "udp_pingpong": "UDP, half a round trip, 64 bytes",
    "tcp_pingpong": "TCP, the same",
    "redis_get": "redis GET, 50 clients",
    "tcp_bulk_receive": "TCP, one stream received",
}


def headlines(results):
    """The table of README.md; "" when nothing of it was measured."""
    lines = ["| | unit | kernel | libvma.so | better by |", "| --- | --- | ---: | ---: | ---: |"]
    for name, words in HEADLINES.items():
        if name in results:
            row = results[name]
            lines.append(f"| {words} | {row['unit']} | {cell(row['kernel'])} | {cell(row['ours'])} | "
                         f"**{row['vs_kernel']:.2f}** |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


# Those of its second table.
PEOPLE = {
    "busy_redis_50": "redis GET, 50 clients",
    "busy_nginx_1k": "nginx, 1 KiB",
    "busy_iperf_8": "iperf3, 8 streams, the worse way",
    "loaded_redis_50": "redis, an endless loop on each core beside",
}


def people_headlines(results):
    """The second table of README.md; "" when nothing of it was measured."""
    lines = ["| nothing pinned | unit | kernel | on both sides | server only | better by |",
             "| --- | --- | ---: | ---: | ---: | ---: |"]
    rows = [f"| {words} | {row['unit']} | {cell(row['kernel'])} | {cell(row['ours'])} | {cell(row['server'])} | "
            f"{times(row['vs_kernel'])}, {times(row['vs_kernel_server'])} |"
            for name, words in PEOPLE.items() if (row := results.get(name))]
    return "\n".join(lines + rows) + "\n" if rows else ""


def between(text, name, new):
    """The text with what stands between the two marks of that name replaced."""
    done, n = re.subn(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", lambda m: m.group(1) + new + m.group(2), text,
                      flags=re.S)
    assert n == 1, f"the marks of {name} stand there {n} times"
    return done


def write_readme(results, folder, root=ROOT):
    """
    Between their marks the tables are replaced, in docs/bench.md and README.md; the plot goes to docs/. What stands between the
    marks of a table of which nothing was measured stays.
    """
    for path, name, text in ((root / "docs" / "bench.md", "bench", table(results)),
                             (root / "README.md", "headlines", headlines(results)),
                             (root / "docs" / "bench.md", "people", people_table(results)),
                             (root / "README.md", "people", people_headlines(results))):
        if text:
            path.write_text(between(path.read_text(), name, text))
    if (folder / "latency.svg").exists():
        shutil.copy(folder / "latency.svg", root / "docs" / "latency.svg")
