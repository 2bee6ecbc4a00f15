# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`make test` leaves cases out (few.py): each is in one part, every test in each, and ALL=1 runs what is marked `whole`."""

import subprocess

from few import PARTS, left_out
from netns import PATIENCE, PYTHON, ROOT


class Item:
    """What left_out() wants of one of pytest's."""

    def __init__(self, nodeid, whole=False):
        self.nodeid = nodeid
        self.whole = whole

    def get_closest_marker(self, name):
        return name == "whole" and self.whole


def run(items, part):
    out = left_out(items, part)
    return [i.nodeid for i in items if i not in out]


def test_each_case_runs_in_one_part_or_in_all():
    many = [Item(f"t.py::test_many[{end}-{family}]") for end in ("both", "ours", "kernel") for family in (4, 6)]
    items = [Item("t.py::test_one"), *[Item(f"t.py::test_two[{n}]") for n in range(2)], *many]
    parts = [run(items, part) for part in range(5, 5 + PARTS)]
    print(*parts, sep="\n")
    for names in parts:
        assert names[:3] == [i.nodeid for i in items[:3]]
        assert 1 <= len(names[3:]) < len(many)
    assert sorted({n for names in parts for n in names}) == sorted(i.nodeid for i in items)


def test_a_test_with_many_cases_is_never_left_out_as_a_whole():
    for n in range(3, 40):
        for part in range(PARTS):
            assert run([Item(f"t.py::test_{n}[{i}]") for i in range(n)], part), (n, part)


def test_what_is_for_the_whole_run_is_left_out():
    assert run([Item("t.py::test_long", whole=True), Item("t.py::test_short")], 0) == ["t.py::test_short"]


def test_pytest_does_it():
    """With the tests of another file, which are only named."""
    def names(*options):
        done = subprocess.run([PYTHON, "-m", "pytest", "tests/integration/test_demo.py", "--collect-only", "-q", "-p", "no:cacheprovider", *options],
                              cwd=ROOT, capture_output=True, text=True, timeout=60 * PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return {line for line in done.stdout.splitlines() if "::" in line}

    left = names() - names("--few=1")
    print(*sorted(left), sep="\n")
    assert {n for n in left if "[" not in n} == {"tests/integration/test_demo.py::test_two_demos_at_once_do_not_collide"}
    assert any("[" in n for n in left)
