# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Random programs answer the same with the library as with kernel sockets. See whole_programs.py and
program_scripts.py.

By hand: SEEDS=50000 for more of them, FIRST=4711 to begin with another, SHRINK=1 to make what differs shorter.
"""

import os

import pytest

from program_found import FOUND, found
from program_scripts import script
from whole_programs import Both, difference

SEEDS = int(os.environ.get("SEEDS", 400))
FIRST = int(os.environ.get("FIRST", 1))
PARTS = 4  # side by side, with several workers
BATCH = 20  # scripts of one process
# SIGSEGV is the sanitizer's there, and the stack of a cancelled thread is poisoned.
pytestmark = pytest.mark.no_sanitize


def report(both, seed, text):
    if not os.environ.get("SHRINK"):
        return f"seed {seed}:\n{text}"
    short = both.shrink(script(seed))
    shown = difference(*both.transcripts({seed: short})[seed])
    return f"seed {seed}, as short as it differs:\n{shown}\nIn full:\n{text}"


@pytest.fixture
def both(make_net):
    return Both(make_net(), make_net())


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_are_answered_as_by_the_kernel(both, part):
    seeds = range(FIRST + part, FIRST + SEEDS, PARTS)
    differ, lines = [], 0
    for at in range(0, len(seeds), BATCH):
        scripts = {seed: script(seed) for seed in seeds[at:at + BATCH]}
        for seed, (kernel, library) in both.transcripts(scripts).items():
            lines += len(kernel)
            text = difference(kernel, library)
            if text:
                differ.append(report(both, seed, text))
                print(differ[-1], flush=True)
    assert not differ, f"{len(differ)} of {len(seeds)} differ:\n" + "\n".join(differ[:5])
    print(f"{len(seeds)} scripts, {lines} answers")


@pytest.mark.parametrize("what", FOUND)
def test_what_scripts_have_found(both, what):
    kernel, library = both.transcripts({0: found(what)})[0]
    print("\n".join(f"{call} = {answer}" for call, answer in kernel))
    assert not difference(kernel, library), f"{what}:\n{difference(kernel, library)}"
