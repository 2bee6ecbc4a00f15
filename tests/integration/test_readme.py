# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What README and the documents say: the terminal session is run, links lead somewhere, packages are told."""

import re
import subprocess

import pytest

import terminal
from netns import ROOT

README = ROOT / "README.md"
MOST_LINES = 180


def documents():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    # A tree without git's own directory is one of an archive, where the tests' own documents are the same.
    return [ROOT / n for n in names if (ROOT / n).exists()] or [README, *ROOT.glob("docs/*.md"), *ROOT.glob("*.md")]


@pytest.mark.no_sanitize
def test_the_session_prints_what_readme_shows(library):
    """All but the module's part, which tests/vm/test_readme_vm.py runs."""
    session = terminal.play(module=False)
    assert [c for c in session if "LD_PRELOAD" in c.text] and [c for c in session if "bpftool" in c.text]
    assert [c for c in session if "vma_stats" in c.text]


SHOWN = """
vmastat: stats for application: sockperf with pid: 17
...
 3   Rx:       4245      58        0     100.0
-----
""".splitlines()


@pytest.mark.parametrize("printed, fit", [
    ("vmastat: stats for application: sockperf with pid: 4711\n 3 Rx: 1 0 0 9.5\n-----", True),
    ("vmastat: stats for application: sockperf with pid: 1\nmore\n\n 3 Rx: 1 0 0 9\n-----", True),
    ("vmastat: stats for application: sockperf with pid: 1\n 3 Rx: 1 0 0 9 7\n-----", False),  # a column more
    ("vmastat: stats for application: sockperf with pid: 1\n 3 Tx: 1 0 0 9\n-----", False),  # another word
    ("vmastat: stats for application: sockperf with pid: 1\n 3 Rx: 1 0 0 9\n-----\nmore", False),  # a line more
    ("vmastat: stats for application: sockperf with pid: 1\n 3 Rx: 1 0 0 9", False),  # a line less
    ("more\nvmastat: stats for application: sockperf with pid: 1\n 3 Rx: 1 0 0 9\n-----", False),
    ("", False),
])
def test_an_output_fits_when_only_its_numbers_differ(printed, fit):
    assert terminal.fits(SHOWN, printed.splitlines()) == fit


def test_addresses_are_compared():
    assert terminal.fits(["10.77.0.1:11111"], ["10.77.0.1:7"])
    assert not terminal.fits(["10.77.0.1:11111"], ["10.77.0.2:11111"])


def test_readme_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= MOST_LINES, f"README.md has {len(lines)} lines: what is reference belongs in docs/"


def links(text):
    """What [words](here) and ![words](here) name, out of code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"\w+:", target)]


def anchors(text):
    """The names by which a document's headings can be linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("document", documents(), ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    broken = []
    for target in links(document.read_text()):
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists() or anchor and anchor not in anchors(file.read_text()):
            broken.append(target)
    assert not broken, f"{document.name}: {broken}"


def test_no_document_speaks_of_one_that_is_not_there():
    """Names of files in code quotes: those of folders that the tree has must be in it."""
    missing = []
    for document in documents():
        for name in re.findall(r"`((?:lib|bpf|kmod|tools|include|tests|scripts|docs|etc)/[\w./-]+)`", document.read_text()):
            if not (ROOT / name).exists():
                missing.append(f"{document.name}: {name}")
    assert not missing, missing


@pytest.mark.parametrize("array, heading", [("packages", "To build and test"), ("bench_packages", "To measure"),
                                            ("deb_packages", "To make Debian packages")])
def test_each_package_that_is_installed_has_its_reason(array, heading):
    """scripts/deps.sh and docs/packages.md name the same ones."""
    listed = re.search(rf"^{array}=\((.*?)^\)", (ROOT / "scripts" / "deps.sh").read_text(), re.M | re.S).group(1)
    installed = set(re.sub(r"#.*", "", listed).split())
    table = re.search(rf"^## {heading}$(.*?)^## ", (ROOT / "docs" / "packages.md").read_text(), re.M | re.S).group(1)
    told = {name.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.M) for name in row.split(",")} - {"package", "---"}
    assert installed == told, f"only in deps.sh: {installed - told}; only in packages.md: {told - installed}"
