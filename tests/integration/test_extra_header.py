# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""include/mellanox/vma_extra.h: its layout is the published one's to the byte, and C and C++ programs compile with it."""

import subprocess

import pytest

from netns import ROOT

LAYOUT = ROOT / "tests" / "integration" / "vma_extra.layout"
COMPILERS = {"c": ["gcc", "-x", "c", "-std=gnu11"], "c++": ["g++", "-x", "c++", "-std=gnu++11", "-Wno-invalid-offsetof"]}


def assertions():
    """A line for each line of the table."""
    for line in LAYOUT.read_text().splitlines():
        what, *words, number = line.split()
        # An empty struct is of one byte in C++.
        if what == "#" or not number.isdigit() or (what == "size" and number == "0"):
            continue
        if what == "offset":
            expression = f"offsetof({' '.join(words[:-1])}, {words[-1]})"
        else:
            expression = {"size": "sizeof(%s)", "value": "(long long)(%s)"}[what] % " ".join(words)
        yield f'CHECK({expression} == {number}, "{line}");'


def compiled(tmp_path, language, text):
    source = tmp_path / "program"
    source.write_text(text)
    return subprocess.run([*COMPILERS[language], "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
                           "-fsyntax-only", source], capture_output=True, text=True)


HEAD = """#include <mellanox/vma_extra.h>
#ifdef __cplusplus
#define CHECK static_assert
#else
#define CHECK _Static_assert
#endif
"""


@pytest.mark.parametrize("language", COMPILERS)
def test_the_layout_is_the_published_one(tmp_path, language):
    lines = list(assertions())
    print(f"{len(lines)} sizes, offsets and values")
    assert len(lines) > 180
    run = compiled(tmp_path, language, HEAD + "\n".join(lines) + "\nint main(void) { return !vma_get_api(); }\n")
    assert run.returncode == 0, run.stderr
    # The table can fail.
    run = compiled(tmp_path, language, HEAD + lines[0].replace(" == ", " != ") + "\n")
    assert run.returncode != 0 and "static assertion" in run.stderr


@pytest.mark.parametrize("language", COMPILERS)
def test_it_brings_no_names_that_programs_use(tmp_path, language):
    """sockperf has members of its own that sys/uio.h's names are macros for; the published header does not include that."""
    run = compiled(tmp_path, language, "#include <mellanox/vma_extra.h>\nint readv, clock_gettime, pthread_create;\n")
    assert run.returncode == 0, run.stderr


@pytest.mark.no_sanitize
def test_make_install_installs_it(tmp_path):
    """From build/ as it is: another BUILD, or other flags, would build the library anew under the tests that run beside."""
    subprocess.run(["make", "-s", "-C", ROOT, "-o", "all", f"DESTDIR={tmp_path}", "PREFIX=/usr", "install"],
                   check=True, capture_output=True)
    assert (tmp_path / "usr/include/mellanox/vma_extra.h").read_text() == (ROOT / "include/mellanox/vma_extra.h").read_text()
    text = (tmp_path / "usr/lib/pkgconfig/libvma.pc").read_text()
    print(text)
    flags = subprocess.run(["pkg-config", "--libs", "--cflags", "libvma"], capture_output=True, text=True,
                           env={"PKG_CONFIG_PATH": f"{tmp_path}/usr/lib/pkgconfig", "PATH": "/usr/bin:/bin"}, check=True).stdout
    assert "-lvma" in flags
