# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""scripts/test/run.sh with steps of a moment: what `make test` counts, prints at its end, and exits with."""

import os
import pty
import re
import subprocess

import pytest

from netns import PATIENCE, ROOT

# What pytest, the unit programs and a plain command print.
STEPS = r"""
pytest_passes() { echo '...  [100%]'; echo '0.40s call     test_a.py::test_slow'; echo '0.01s call     test_a.py::test_quick'; echo '3 passed in 0.41s'; }
pytest_fails() { echo '.F  [100%]'; echo 'E   assert 0'; echo 'FAILED test_b.py::test_wrong - assert 0'; echo '1 failed, 1 passed in 0.20s'; return 1; }
pytest_talks() { echo 'E   AssertionError:'; for i in 1 2 3; do echo "E    VMA INFO: $i"; done; seq -f 'E   said %g' 1 20; echo '1 failed in 0.20s'; return 1; }
unit_fails() { echo '  FAILED  test_y   1 failed'; echo '      WARNING: ThreadSanitizer: data race'; echo '4 passed, 1 failed, 0 skipped'; return 1; }
pytest_errs() { echo '1 passed, 2 errors in 0.20s'; return 1; }
pytest_skips() { echo 'SKIPPED [1] test_c.py:7: no such device'; echo '2 passed, 1 skipped in 0.20s'; }
pytest_twice() { echo '3 passed in 0.41s'; echo '=== 2 passed, 1 failed in 0.20s ==='; echo '4 passed in 0.20s'; return 1; }
unit() { echo '  ok      test_x                    5 passed'; echo '5 passed, 0 failed, 0 skipped'; }
plain() { echo 'nothing to count'; }
plain_fails() { echo 'it went wrong'; return 3; }
dies_after_its_tests() { echo '5 passed, 0 failed, 0 skipped'; return 1; }
"""


@pytest.fixture
def command(tmp_path):
    """command(steps, **variables): a program that runs them as scripts/test.sh does."""
    def command(steps, **variables):
        (tmp_path / "logs").mkdir(exist_ok=True)
        settings = {"logs": "logs", "only": "", "all": "", "repeat": 1, "load": 0, **variables}
        script = "set -u -o pipefail\n" + "".join(f"{k}={v}\n" for k, v in settings.items()) + STEPS
        script += "plan()\n{\n" + "".join(f"\tstep {s}\n" for s in steps) + f"}}\n. {ROOT}/scripts/test/run.sh\nrun_all\n"
        (tmp_path / "run.sh").write_text(script)
        return ["bash", tmp_path / "run.sh"]
    return command


@pytest.fixture
def run(tmp_path, command):
    """run(steps, **variables): the lines that it printed, and its exit status."""
    def run(steps, **variables):
        done = subprocess.run(command(steps, **variables), cwd=tmp_path, capture_output=True, text=True, timeout=120 * PATIENCE, stdin=subprocess.DEVNULL)
        print(done.stdout + done.stderr)
        return (done.stdout + done.stderr).splitlines(), done.returncode
    return run


@pytest.mark.parametrize("steps, closing, status", [
    (["main each p pytest_passes"], "3 passed, 0 failed, 0 skipped", 0),
    (["main each u unit"], "5 passed, 0 failed, 0 skipped", 0),
    (["first each b plain"], "1 passed, 0 failed, 0 skipped", 0),
    (["first each b plain_fails"], "0 passed, 1 failed, 0 skipped", 1),
    (["main each f pytest_fails"], "1 passed, 1 failed, 0 skipped", 1),
    (["main each e pytest_errs"], "1 passed, 2 failed, 0 skipped", 1),
    (["main each s pytest_skips"], "2 passed, 0 failed, 1 skipped", 1),  # what was skipped is a failure
    (["main each t pytest_twice"], "9 passed, 1 failed, 0 skipped", 1),
    (["main each d dies_after_its_tests"], "5 passed, 1 failed, 0 skipped", 1),
    (["main each s pytest_skips", "vm each d dies_after_its_tests"], "7 passed, 1 failed, 1 skipped", 1),
    (["first each b plain", "beside each u unit", "main each p pytest_passes", "main each f pytest_fails", "vm each s pytest_skips", "lint each l unit"],
     "17 passed, 1 failed, 1 skipped", 1),
], ids=lambda v: " ".join(s.split()[-1] for s in v) if isinstance(v, list) else str(v).split(",", maxsplit=1)[0])
def test_the_last_line_counts_all_and_the_exit_status_says_so(run, steps, closing, status):
    lines, rc = run(steps)
    assert (lines[-1], rc) == (closing, status)


def test_each_step_has_a_line_of_its_own_and_a_failure_its_output(run):
    lines, _ = run(["main each good pytest_passes", "main each bad pytest_fails", "main each worse plain_fails"])
    steps = {m[2]: (m[1], m[3]) for m in (re.fullmatch(r"(ok|FAILED) +(\w+) +\d+ s +(.*)", line) for line in lines) if m}
    assert steps == {"good": ("ok", "3 passed, 0 failed, 0 skipped"), "bad": ("FAILED", "1 passed, 1 failed, 0 skipped"), "worse": ("FAILED", "")}
    assert "    FAILED test_b.py::test_wrong - assert 0" in lines and "    it went wrong" in lines
    assert not any("[100%]" in line for line in lines)


def test_the_end_names_the_slowest_and_what_was_skipped_and_why(run):
    lines, _ = run(["main each p pytest_passes", "main each s pytest_skips"])
    at = lines.index("the slowest tests:")
    assert [line.split() for line in lines[at + 1:at + 3]] == [["0.40s", "p", "test_a.py::test_slow"], ["0.01s", "p", "test_a.py::test_quick"]]
    assert "skipped: s: [1] test_c.py:7: no such device" in lines


def test_what_failed_is_said_once_more_at_the_end(run):
    lines, _ = run(["main each good pytest_passes", "main each bad pytest_fails", "main each worse unit_fails"])
    at = lines.index("what failed in bad:")
    assert lines[at:-2] == ["what failed in bad:", "    FAILED test_b.py::test_wrong - assert 0", "    E   assert 0", "",
                            "what failed in worse:", "    FAILED  test_y   1 failed", "    WARNING: ThreadSanitizer: data race", ""]
    assert "what failed in good:" not in lines


def test_of_what_a_program_has_said_the_end_shows_begin_and_end(run):
    lines, _ = run(["main each bad pytest_talks"])
    said = [line.split("E   ")[1] for line in lines[lines.index("what failed in bad:") + 1:-2] if "E   " in line]
    assert said == ["AssertionError:", *(f"said {i}" for i in (1, 2, 3, *range(13, 21)))]


def test_when_decides_which_steps_run(run):
    steps = ["main each a plain", "main few b plain", "main all c plain"]

    def ran(**variables):
        return [line.split()[1] for line in run(steps, **variables)[0] if re.match("(ok|FAILED) ", line)]

    assert ran() == ["a", "b"]
    assert ran(all=1) == ["a", "c"]
    assert ran(only="c,a") == ["a", "c"]


def test_a_step_that_is_not_there_is_said(run):
    lines, rc = run(["main each a plain"], only="a,nosuch")
    assert rc == 2 and lines == ["test.sh: ONLY names steps that are not there: nosuch "]


def test_rounds_are_counted_together(run):
    lines, rc = run(["main each p pytest_passes"], repeat=2)
    assert [line for line in lines if line.startswith("---")] == ["--- round 1 of 2", "--- round 2 of 2"]
    assert (lines[-1], rc) == ("6 passed, 0 failed, 0 skipped", 0)


def test_lanes_run_side_by_side_and_after_the_first(run, tmp_path):
    """Each of three lanes waits for the others; none begins before the lane `first` has ended."""
    together = "eval 'test -e built && touch {0} && until [ -e main ] && [ -e vm ] && [ -e lint ]; do sleep 0.05; done'"
    lines, rc = run(["first each b eval 'sleep 0.3; touch built'", *(f"{lane} each {lane} {together.format(lane)}" for lane in ("main", "vm", "lint"))])
    assert (lines[-1], rc) == ("4 passed, 0 failed, 0 skipped", 0)


def test_progress_says_what_runs_how_many_are_done_and_how_long_it_takes(command, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "times").write_text("slow 40 10\n")
    ours, its = pty.openpty()
    steps = ["main each slow eval 'echo ...; for i in {1..600}; do [ -e seen ] && echo 3 passed in 1.0s && break; sleep 0.05; done'"]
    with subprocess.Popen(command(steps), cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=its, stderr=its) as process:
        os.close(its)
        seen = b""
        while chunk := read(ours):
            seen += chunk
            if re.search(rb"\r0:\d\d of about 0:[34]\d: 3 of 10 tests; slow 3/10\x1b", seen):
                (tmp_path / "seen").touch()
    os.close(ours)
    print(seen)
    assert process.returncode == 0 and seen.endswith(b"3 passed, 0 failed, 0 skipped\r\n")


def read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody has its other end any more
        return b""


def test_a_step_takes_as_long_as_it_took_the_last_time(run, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "times").write_text("other 7 7\np 40 10\nf 40 10\n")
    run(["main each p pytest_passes", "main each f pytest_fails"])
    times = dict(line.split(" ", 1) for line in (tmp_path / "logs" / "times").read_text().splitlines())
    assert times["other"] == "7 7" and times["p"].split()[1] == "3"
    assert times["f"] == "40 10", "one that failed says nothing"


def test_a_skipped_unit_test_says_why(tmp_path):
    """scripts/check.sh with a program that prints what cmocka does."""
    program = tmp_path / "tests" / "unit" / "test_some"
    program.parent.mkdir(parents=True)
    program.write_text(r"""#!/bin/sh
echo '[==========] Running 3 test(s).
[ RUN      ] works
    of another test
[       OK ] works
[ RUN      ] needs_a_card
    there is no card here
[  SKIPPED ] needs_a_card
[ RUN      ] is_silent
[  SKIPPED ] is_silent
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 2 test(s), listed below:
[  SKIPPED ] needs_a_card
[  SKIPPED ] is_silent'
""")
    program.chmod(0o755)
    done = subprocess.run([ROOT / "scripts" / "check.sh", tmp_path, "test_some"], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.stdout.splitlines()[1:] == ["SKIPPED test_some: needs_a_card: there is no card here",
                                            "SKIPPED test_some: is_silent: no reason given", "1 passed, 0 failed, 2 skipped"]
    assert done.returncode == 1
