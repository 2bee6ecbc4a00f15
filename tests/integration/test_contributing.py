# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Each command that CONTRIBUTING.md shows is one that there is: its target of make, its script, its files, its options and the names
that it takes. They build and test everything, so they are not run here: `make test ALL=1` is made of them.
"""

import os
import re
import shlex
import subprocess
import sys

import pytest

from netns import PYTHON, ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = {t for line in re.findall(r"^([a-z][\w -]*):(?!=)", MAKEFILE, re.M) for t in line.split()}
STEPS = set(re.findall(r"^\tstep \S+ \S+ (\S+)", (ROOT / "scripts/test.sh").read_text(), re.M))
READ = "\n".join(p.read_text() for p in [ROOT / "Makefile", ROOT / "scripts/test.sh", ROOT / "scripts/kunit.sh", ROOT / "scripts/mutate"])
# What cannot be looked up here.
EXCUSED = {
    "./autogen.sh": "sockperf's own sources, which nobody has here",
    "gdb": "it debugs what a reader has; that the function has this name is looked up below",
}


def commands():
    for kind, block in re.findall(r"^```([^\n]*)\n(.*?)^```$", TEXT, re.M | re.S):
        assert kind in ("", "sh"), f"a block of another kind: {kind}"
        for line in re.sub(r"\s*\\\n\s*", " ", block).splitlines():
            # A line that goes on what the one above it is for.
            if line.strip() and not line.startswith("   "):
                yield re.split(r"\s+# |\s{3,}", line.strip())[0] if "gdb" not in line else line


COMMANDS = sorted(set(commands()))


def found_by(*words):
    """How many tests pytest finds so."""
    r = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words], cwd=ROOT,
                       capture_output=True, text=True)
    return len(re.findall("^tests/.*::", r.stdout, re.M))


def look_make(words):
    targets = [w for w in words if "=" not in w and not re.fullmatch(r"-j\d+", w)] or ["all"]
    assert set(targets) <= TARGETS, targets
    for name, value in (w.split("=", 1) for w in words if "=" in w):
        assert name == "CC" or re.search(rf"\b{name}\b", READ), name
        if name != "ONLY":
            continue
        if targets == ["test"]:
            assert set(value.split(",")) <= STEPS, value
        elif targets == ["vm"]:
            assert (ROOT / value).is_file(), value
        elif targets == ["mutate"]:
            look_mutants(value.split(","))
        else:
            assert targets == ["kunit"] and re.search(rf'\.name = "{value.rstrip("*")}', kunit_sources()), value


def kunit_sources():
    return "\n".join(p.read_text() for p in (ROOT / "tests/kunit").glob("*.c"))


def look_mutants(names):
    known = re.findall(r"^mutant (\S+)", (ROOT / "tests/mutate/mutants").read_text(), re.M)
    assert set(names) <= set(known), names


def look_pytest(words):
    paths = [w for w in words if w.startswith("tests/")]
    assert paths and all((ROOT / p).exists() for p in paths), paths
    options = (ROOT / "tests/integration/net_fixtures.py").read_text()
    assert all(f'"{w}"' in options for w in words if w.startswith("--")), words
    if "-k" in words and all((ROOT / p).is_file() for p in paths):
        assert found_by(*paths, "-k", words[words.index("-k") + 1]), words


def look_script(program, words):
    assert os.access(ROOT / program, os.X_OK), program
    if program == "scripts/check.sh":
        assert all((ROOT / "tests/unit" / f"{w}.c").is_file() for w in words[1:]), words
    elif program == "scripts/lint.sh":
        text = (ROOT / program).read_text()
        assert all(f"lint_{w.replace('-', '_')}()" in text for w in words[1:]), words
    elif program == "scripts/vm":
        # Collected in the machine only.
        at = next(i for i, w in enumerate(words) if w.startswith("tests/"))
        own, (file, option, value) = words[:at], words[at:]
        assert set(own[::2]) <= {f"-{letter}" for letter in re.search(r"getopts ([a-z:]+)", (ROOT / program).read_text())[1] if letter != ":"}, own
        if option == "-k":
            assert re.search(rf"^def test_\w*{value}", (ROOT / file).read_text(), re.M), words
        else:
            assert f'"{option}"' in (ROOT / "tests/integration/net_fixtures.py").read_text() and (ROOT / file).is_file(), words
    else:
        assert not words or words == ["--list"], words


def look_built(program, words):
    """What the build makes of a file, or a folder, of tests/."""
    source = ROOT / program.removeprefix("build/")
    assert source.with_suffix(".c").is_file() or (source.parent / "main.c").is_file(), program
    text = (source.parent / "main.c").read_text() if words else ""
    assert all(f'"{w}"' in text for w in words if w.startswith("--")), words


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_shown_is_there(command):
    words = shlex.split(command)
    if words[0] == "sudo":
        words = words[1:]
    tests = [w for w in words if w.startswith("tests/")]
    while re.match(r"[A-Z_]+=", words[0]):
        # A variable that a test reads, or the library that it preloads does.
        name = words.pop(0).split("=")[0]
        sources = [ROOT / t for t in tests] + [ROOT / "lib/runtime/lock_check.c"]
        assert any(f'"{name}"' in s.read_text() for s in sources), name
    program, words = words[0], words[1:]
    print(program, words)
    if program in EXCUSED:
        assert EXCUSED[program]
    elif program == "make":
        look_make(words)
    elif program == PYTHON:
        assert words[:2] == ["-m", "pytest"]
        look_pytest(words[2:])
    elif program.startswith("scripts/"):
        look_script(program, words)
    else:
        assert program.startswith("build/tests/"), program
        look_built(program, words)


def test_gdb_breaks_at_a_function_that_there_is():
    name, = re.findall(r"'break (\w+)'", TEXT)
    assert re.search(rf"^int {name}\(", (ROOT / "lib/socket/udp/sock.c").read_text(), re.M)


def test_each_step_is_in_the_tables_and_no_other():
    shown = set()
    for cell in re.findall(r"^\| ([a-z][\w., -]*?) \| (?:first|main|vm|lint|beside) \|", TEXT, re.M):
        first, *more = cell.split(", ")
        shown |= {first, *(first.split("-")[0] + m if m.startswith("-") else m for m in more)}
    print(sorted(shown))
    assert shown == STEPS
