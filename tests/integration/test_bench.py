# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A short bench yields well-formed results. What the figures are is not this test's business."""

import json
import subprocess
import time
import types

import pytest

from netns import PATIENCE, PYTHON, ROOT, wait_for

KEYS = {"unit", "ours", "kernel", "floor", "vs_kernel", "vs_floor", "spread"}


def bench(library, out, *options):
    return subprocess.run([PYTHON, ROOT / "tests/bench/bench.py", "--build", library.build, "--out", out, *options],
                          capture_output=True, text=True, timeout=120 * PATIENCE)


@pytest.mark.whole
@pytest.mark.no_sanitize
def test_a_short_bench_yields_well_formed_results(library, tmp_path):
    done = bench(library, tmp_path, "--budget", "1", "--only", "udp_pingpong,udp_send,rss_idle,passthrough")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == ["udp_pingpong", "udp_send", "rss_idle", "passthrough"]
    for name, row in results.items():
        assert set(row) == KEYS and isinstance(row["unit"], str), name
        assert isinstance(row["ours"], (int, float)), name
        # A ratio is there exactly when its side is.
        assert (row["kernel"] is None) == (row["vs_kernel"] is None), name
        assert (row["floor"] is None) == (row["vs_floor"] is None), name
    for name in ("udp_pingpong", "udp_send"):
        assert results[name]["kernel"] > 0 and results[name]["floor"] > 0 and results[name]["ours"] > 0
    assert results["rss_idle"]["kernel"] is None
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "latency.svg").read_text()
    assert "round 1" in done.stderr, "no progress was shown"


@pytest.fixture
def programs(monkeypatch):
    """The benchmarks' own directory is not Python's to know."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")


@pytest.mark.whole
@pytest.mark.no_sanitize
def test_a_row_as_people_run_it_and_one_beside_endless_loops(library, tmp_path):
    done = bench(library, tmp_path, "--rounds", "1", "--only", "busy_udp_*,loaded_tcp_pingpong")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results) == ["busy_udp_pingpong", "loaded_tcp_pingpong"]
    for name, row in results.items():
        assert row["failed"] == {} and row["spread"] == 0, row
        for side in ("kernel", "ours", "server"):
            assert row[side] > 0 and row[f"cpu_{side}"] > 0 and row[f"p99_{side}"] >= row[side], (name, side, row)
        for end in ("", "_server"):
            for ratio in ("vs_kernel", "cpu_vs_kernel", "p99_vs_kernel"):
                assert row[ratio + end] > 0, (name, ratio + end, row)
            # Each message of the kernel's run is in the kernel's counters, and next to none of the library's.
            assert row[f"by_kernel{end}"] < 0.05, row
    assert "busy_udp_pingpong: round 1 of 1, server" in done.stderr and "[1/2, some" in done.stderr, done.stderr
    assert "kernel's side moved by" in done.stdout
    assert set(json.loads((tmp_path / "times.json").read_text())) == set(results)
    written = (tmp_path / "results.md").read_text()
    assert "| loaded_tcp_pingpong |" in written


@pytest.mark.alone
def test_an_endless_loop_is_not_counted(programs):
    """CPU time for each request is what the machine spent but for the loops."""
    import machine

    with machine.endless_loops() as loops:
        wait_for(lambda: all(machine.ran(pid) > 0.05 for pid in loops), 30.0, "the loops run")
        begun = time.monotonic()  # first: what the machine does between the looks is within it
        meter, before = machine.Meter(loops), sum(machine.ran(pid) for pid in loops)
        time.sleep(1.0)
        taken = sum(machine.ran(pid) for pid in loops) - before
        spent = meter.spent()
        there = (time.monotonic() - begun) * machine.CPUS
    print(f"of {there:.2f} s the loops took {taken:.2f}, all others {spent:.2f}")
    # Idle time is told in hundredths.
    assert taken > 0 and spent + taken < there + 0.1


def test_a_program_that_is_missing_is_one_clear_line(programs, capsys, monkeypatch, library, tmp_path):
    import bench as program
    import people

    class Absent(people.Redis):
        needs = {"nosuchserver": "its-package"}

    monkeypatch.setitem(people.ROWS, "busy_absent", people.one(lambda: Absent(1)))
    where = types.SimpleNamespace(bin=tmp_path, library=library, tmp=tmp_path, close=lambda: None, progress=lambda text: None)
    assert program.measured_as_people_run_it(where, "busy_absent", 1) is None
    assert capsys.readouterr().err == ("busy_absent: not measured: nosuchserver is not installed (Debian package its-package): "
                                       "run scripts/deps.sh bench\n")


def test_a_side_that_fails_is_given_up_and_the_others_are_measured(programs, monkeypatch, capsys, tmp_path):
    """A hang or a crash with the library is what the row has to tell."""
    import people

    def run(way, side, loops):
        if side is people.SERVER:
            raise AssertionError("the server hangs\nin detail")
        return people.Run(figure=2.0 if side is people.BOTH else 1.0, p99=None, cpu=1.0, by_kernel=1.0)

    monkeypatch.setattr(people.Way, "run", run)
    where = types.SimpleNamespace(bin=tmp_path, library=None, tmp=tmp_path, progress=lambda text: None)
    row = people.measure(where, "busy_redis_1", 3)
    print(row)
    assert row["vs_kernel"] == 2.0 and row["server"] is None and row["vs_kernel_server"] is None
    assert row["failed"] == {"server": "the server hangs"}
    said = capsys.readouterr().err
    assert said.count("busy_redis_1, server: once more") == 1 and said.count("busy_redis_1, server: given up") == 1


def test_the_worse_way_counts(programs, monkeypatch, tmp_path):
    import people

    def run(way, side, loops):
        slow = way.works[0].options and side is people.BOTH
        return people.Run(figure=0.5 if slow else 1.0, p99=None, cpu=1.0, by_kernel=1.0)

    monkeypatch.setattr(people.Way, "run", run)
    where = types.SimpleNamespace(bin=tmp_path, library=None, tmp=tmp_path, progress=lambda text: None)
    row = people.measure(where, "busy_iperf_1", 2)
    print(row)
    assert row["way"] == "down" and row["vs_kernel"] == 0.5 and row["other_ways"]["up"]["vs_kernel"] == 1.0


def test_all_rows_fit_into_the_time(programs, tmp_path):
    """Rows as people run it take what they take; the pinned ones share the rest."""
    import bench as program
    import people
    from plan import Plan

    names, unknown = program.chosen("")
    assert not unknown and len(names) == len(program.NAMES) + len(people.ROWS)
    assert program.chosen("busy_redis_*,nosuch*") == ([n for n in names if n.startswith("busy_redis_")], ["nosuch*"])
    plan = Plan(names, people.ROWS, tmp_path / "times.json")
    with plan.row(names[0]) as budget:
        all_told = budget * len(program.NAMES) + Plan.PEOPLE * len(people.ROWS)
    print(f"{budget:.1f} s for each of {len(program.NAMES)} pinned rows, {all_told / 60:.1f} minutes")
    assert Plan.LEAST <= budget <= Plan.MOST and all_told <= 25 * 60
    assert json.loads((tmp_path / "times.json").read_text()).keys() == {names[0]}


def test_an_unknown_name_is_refused_with_the_known_ones(library, tmp_path):
    done = bench(library, tmp_path, "--only", "udp_pigpong")
    assert done.returncode == 2
    assert "udp_pigpong" in done.stderr and "udp_pingpong" in done.stderr


def test_the_documents_take_what_was_measured(tmp_path, programs):
    """Between their marks, and nowhere else."""
    import report

    row = {"unit": "microseconds", "kernel": 36.5, "ours": 4.25, "floor": None, "vs_kernel": 8.5882, "vs_floor": None, "spread": 0.1}
    busy = {**row, "server": 5.0, "vs_kernel_server": 7.3, "failed": {}}
    for what in ("cpu", "p99"):
        busy.update({f"{what}_{side}": 2.0 for side in ("kernel", "ours", "server")})
        busy.update({f"{what}_vs_kernel": 1.25, f"{what}_vs_kernel_server": None})
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/bench.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    report.write_readme({"udp_pingpong": row, "passthrough": row}, tmp_path, tmp_path)
    readme, table = ((tmp_path / name).read_text() for name in ("README.md", "docs/bench.md"))
    assert "| UDP, half a round trip, 64 bytes | microseconds | 36.5 | 4.25 | **8.59** |\n<!-- headlines: end -->" in readme
    assert "| passthrough |" in table and "| redis_get |" not in table
    # Nothing of the second tables was measured: they stand as they stood.
    for name, text in (("README.md", readme), ("docs/bench.md", table)):
        assert text.split("<!-- people: begin")[1] == (ROOT / name).read_text().split("<!-- people: begin")[1]
    report.write_readme({"busy_redis_50": busy}, tmp_path, tmp_path)
    for name, text, mark in (("README.md", readme, "headlines"), ("docs/bench.md", table, "bench")):
        part = f"<!-- {mark}: end"
        assert (tmp_path / name).read_text().split(part)[0] == text.split(part)[0], "the first tables stand as they stood"
    report.write_readme({"udp_pingpong": row, "passthrough": row, "busy_redis_50": busy}, tmp_path, tmp_path)
    readme, table = ((tmp_path / name).read_text() for name in ("README.md", "docs/bench.md"))
    assert "| redis GET, 50 clients | microseconds | 36.5 | 4.25 | 5 | **8.59**, **7.30** |\n<!-- people: end -->" in readme
    assert "| **8.59** | **7.30** | **1.25** | – | **1.25** | – | 10 % |\n<!-- people: end -->" in table
    for name, text in (("README.md", readme), ("docs/bench.md", table)):
        before, after = (ROOT / name).read_text(), text
        for mark in ("begin -->", "end -->"):
            assert before.count(mark) == after.count(mark)
        assert before.split("<!--", 1)[0] == after.split("<!--", 1)[0]
        assert before.rsplit("end -->", 1)[1] == after.rsplit("end -->", 1)[1]
