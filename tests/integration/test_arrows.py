# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""scripts/arrows on a tree of two rooms: `upper` may use `lower`, not the other way round."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

CLEAN = {
    "lib/arrows.txt": "upper: lower\nlower:\n",
    "lib/upper/upper.h": "int upper(void);\n",
    "lib/upper/upper.c": '#include "upper/upper.h"\n#include "lower/lower.h"\nint upper(void) { return lower(); }\n',
    "lib/lower/lower.h": "int lower(void);\n",
    "lib/lower/lower.c": '#include "lower/lower.h"\nint lower(void) { return 1; }\n',
}


def arrows(tree, files):
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    objects = []
    for source in sorted((tree / "lib").rglob("*.c")):
        made = tree / "build/obj" / source.relative_to(tree).with_suffix(".o")
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-c", f"-I{tree}/lib", "-o", made, source], check=True)
        objects.append(str(made))
    (tree / "build/.core").write_text(" ".join(objects))
    return subprocess.run([ROOT / "scripts/arrows", tree / "build", tree], capture_output=True, text=True)


def test_a_clean_tree_passes(tmp_path):
    done = arrows(tmp_path, CLEAN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 rooms" in done.stdout


@pytest.mark.parametrize("what, source, said", [
    ("include", '#include "upper/upper.h"\nint lower(void) { return 1; }\n', 'lib/lower/lower.c: #include "upper/upper.h"'),
    ("call", "int upper(void);\nint lower(void) { return upper(); }\n", "lib/lower/lower.c: upper() of lib/upper/upper.c"),
])
def test_an_arrow_that_points_up_fails(tmp_path, what, source, said):
    done = arrows(tmp_path, CLEAN | {"lib/lower/lower.c": source})
    assert done.returncode == 1
    assert f"{said}: lower may not use upper" in done.stdout


def test_another_rooms_private_header_is_refused(tmp_path):
    done = arrows(tmp_path, CLEAN | {"lib/lower/part.h": "int lower(void);\n",
                                     "lib/upper/upper.c": '#include "lower/part.h"\nint upper(void) { return lower(); }\n'})
    assert done.returncode == 1
    assert 'lib/upper/upper.c: #include "lower/part.h": of lower others include lower/lower.h only' in done.stdout


def test_a_circle_in_the_list_is_refused(tmp_path):
    done = arrows(tmp_path, CLEAN | {"lib/arrows.txt": "upper: lower\nlower: upper\n"})
    assert done.returncode == 1
    assert "lower: upper is not a room below it" in done.stderr


def test_a_header_that_is_the_rooms_own_fails(tmp_path):
    done = arrows(tmp_path, CLEAN | {"lib/lower/inside.h": "", "lib/upper/upper.c": '#include "lower/inside.h"\nint upper(void) { return 1; }\n'})
    assert done.returncode == 1
    assert 'lib/upper/upper.c: #include "lower/inside.h": others include lower/lower.h' in done.stdout
