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
    "tcp_connections": (("vs_kernel", ">=", 1.5),),
    "redis_get": (("vs_kernel", ">=", 1.5),),
    "redis_set": (("vs_kernel", ">=", 1.5),),
    "tcp_bulk_send": (("vs_kernel", ">=", 0.9),),
    "tcp_bulk_receive": (("vs_kernel", ">=", 0.9),),
    "tcp_loss": (("vs_kernel", ">=", 1.0),),
    "mlx5_udp_send": (("instructions", "<=", 250.0),),
    "mlx5_udp_receive": (("instructions", "<=", 300.0),),
}

WHAT = {
    "udp_pingpong": "half a round trip, 64 B, median; blocking kernel sockets",
    "udp_pingpong_spin": "the same; kernel sockets that spin (`--nonblocked`)",
    "udp_send": "64 B, one `sendto()` a message, received",
    "udp_sendmmsg": "64 B, `sendmmsg()` of 32, received",
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
    "mlx5_udp_sendmmsg": "`sendmmsg()` of 64 of them, all together",
    "mlx5_udp_receive": "one `recvfrom()` of 64 B that finds it there",
    "mlx5_tcp_send": "one `send()` of 64 B over TCP, mlx5 queues in memory",
    "mlx5_tcp_receive": "one `recv()` of 64 B that finds it there",
    "mlx5_udp_receive_strq": "the same from a striding queue (`VMA_STRQ=1`)",
    "mlx5_tcp_receive_strq": "the same from a striding queue (`VMA_STRQ=1`)",
}


def goals(name, row):
    """[("vs_kernel >= 3.5", reached)]"""
    return [(f"{field} {op} {value:g}",
             row[field] is not None and (row[field] >= value if op == ">=" else row[field] <= value))
            for field, op, value in TO_REACH.get(name, ())]


def cell(value):
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def table(results):
    """The table of docs/bench.md."""
    lines = ["| name | what | unit | kernel | libvma.so | floor | vs kernel | vs floor |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for name, row in results.items():
        lines.append("| " + " | ".join([
            name, WHAT.get(name, ""), row["unit"], *(cell(row[k]) for k in ("kernel", "ours", "floor")),
            *("–" if row[k] is None else f"**{row[k]:.2f}**" for k in ("vs_kernel", "vs_floor"))]) + " |")
    return "\n".join(lines) + "\n"


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
    "udp_send": "UDP, 64 bytes a call",
    "redis_get": "redis GET, 50 clients",
    "tcp_bulk_receive": "TCP, one stream received",
}


def headlines(results):
    """The table of README.md."""
    lines = ["| | unit | kernel | libvma.so | better by |", "| --- | --- | ---: | ---: | ---: |"]
    for name, words in HEADLINES.items():
        if name in results:
            row = results[name]
            lines.append(f"| {words} | {row['unit']} | {cell(row['kernel'])} | {cell(row['ours'])} | "
                         f"**{row['vs_kernel']:.2f}** |")
    return "\n".join(lines) + "\n"


def between(text, name, new):
    """The text with what stands between the two marks of that name replaced."""
    done, n = re.subn(rf"(<!-- {name}: begin -->\n).*?(<!-- {name}: end -->)", lambda m: m.group(1) + new + m.group(2), text,
                      flags=re.S)
    assert n == 1, f"the marks of {name} stand there {n} times"
    return done


def write_readme(results, folder, root=ROOT):
    """Between their marks the tables are replaced, in docs/bench.md and README.md; the plot goes to docs/."""
    for path, name, text in ((root / "docs" / "bench.md", "bench", table(results)),
                             (root / "README.md", "headlines", headlines(results))):
        path.write_text(between(path.read_text(), name, text))
    if (folder / "latency.svg").exists():
        shutil.copy(folder / "latency.svg", root / "docs" / "latency.svg")
