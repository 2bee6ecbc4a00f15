# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A short bench yields well-formed results. What the figures are is not this test's business."""

import json
import subprocess

import pytest

from netns import PYTHON, ROOT

KEYS = {"unit", "ours", "kernel", "floor", "vs_kernel", "vs_floor"}


def bench(library, out, *options):
    return subprocess.run([PYTHON, ROOT / "tests/bench/bench.py", "--build", library.build, "--out", out, *options],
                          capture_output=True, text=True, timeout=120)


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


def test_an_unknown_name_is_refused_with_the_known_ones(library, tmp_path):
    done = bench(library, tmp_path, "--only", "udp_pigpong")
    assert done.returncode == 2
    assert "udp_pigpong" in done.stderr and "udp_pingpong" in done.stderr


def test_the_documents_take_what_was_measured(tmp_path, monkeypatch):
    """Between their marks, and nowhere else."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    import report  # its own directory is not Python's to know

    row = {"unit": "microseconds", "kernel": 36.5, "ours": 4.25, "floor": None, "vs_kernel": 8.5882, "vs_floor": None}
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/bench.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    report.write_readme({"udp_pingpong": row, "passthrough": row}, tmp_path, tmp_path)
    readme, table = ((tmp_path / name).read_text() for name in ("README.md", "docs/bench.md"))
    assert "| UDP, half a round trip, 64 bytes | microseconds | 36.5 | 4.25 | **8.59** |\n<!-- headlines: end -->" in readme
    assert "| passthrough |" in table and "| redis_get |" not in table
    for name, text in (("README.md", readme), ("docs/bench.md", table)):
        before, after = (ROOT / name).read_text(), text
        for mark in ("begin -->", "end -->"):
            assert before.count(mark) == after.count(mark)
        assert before.split("<!--", 1)[0] == after.split("<!--", 1)[0]
        assert before.rsplit("end -->", 1)[1] == after.rsplit("end -->", 1)[1]
