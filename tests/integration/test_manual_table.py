# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""docs/manual-table.md: each row of the original's documents has a test that there is, or a reason; each parameter is in it."""

import functools
import re

import pytest

from netns import ROOT

STATES = {"works", "other form", "in part", "missing", "not here", "not tried"}
ROWS = {1: 390, 2: 59}
TEXT = (ROOT / "docs/manual-table.md").read_text()


def rows():
    """(table, number, what, state, test or None, reason)"""
    table = 0
    for line in TEXT.splitlines():
        if found := re.match(r"## Table (\d)", line):
            table = int(found[1])
        if re.match(r"\| \d+ \|", line):
            cells = re.fullmatch(r"\| (\d+) \| (.+) \| ([a-z ]+) \| (.*) \|", line)
            assert cells, f"not a row: {line}"
            test = re.match(r"`([\w/.]+::\w+)`(\. )?", cells[4])
            yield table, int(cells[1]), cells[2], cells[3], test and test[1], cells[4][test.end() if test else 0:].strip()


@functools.cache
def source(name):
    path = ROOT / "tests" / name
    return path.read_text() if path.is_file() else ""


def exists(test):
    """A function of pytest's, or one that a unit program lists: by its whole name, or behind the test_ of a macro."""
    name, function = test.split("::")
    if name.endswith(".py"):
        return re.search(rf"^def {function}\(", source(name), re.M)
    return re.search(rf"^static void (test_)?{function}\(", source(name), re.M)


def test_the_numbers_are_complete():
    for table, last in ROWS.items():
        assert [n for t, n, *_ in rows() if t == table] == list(range(1, last + 1))


def test_each_row_has_a_test_that_there_is_or_a_reason():
    wrong = []
    for table, number, what, state, test, reason in rows():
        assert state in STATES, (number, state)
        if not (test or reason):
            wrong.append((table, number, what, "neither test nor reason"))
        if state not in ("works", "other form") and not reason:
            wrong.append((table, number, what, f"{state}, and no reason"))
        if test and not exists(test):
            wrong.append((table, number, what, f"there is no {test}"))
    assert not wrong, "\n".join(map(str, wrong))


# What the original's documents do not have: this library's own, or of the code of libvma 9.8 alone.
OURS = {"VMA_XDP_MODE", "VMA_XDP_BUSY_POLL", "VMA_XDP_METADATA", "VMA_CQE_COMPRESSION", "VMA_STRQ", "VMA_TX_COALESCE", "VMA_CROWD_TO_KERNEL"}


@pytest.mark.parametrize("variable", re.findall(r'^PARAM_\w+\(\w+,\s*"(\w+)"', (ROOT / "lib/config/parameters.def").read_text(), re.M))
def test_each_parameter_is_in_it(variable):
    names = re.sub(r"(VMA_\w+?)_TX / _RX", r"\1_TX \1_RX", TEXT)
    there = re.search(rf"{variable}\b", names) or any(variable.startswith(p) for p in re.findall(r"(VMA_\w+_)\*", names)) \
        or (variable.endswith("PARAM2") and "VMA_SPEC_PARAM1/2" in names)
    assert bool(there) is (variable not in OURS)
