# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""scripts/arrows on a tree of two rooms: `upper` may use `lower`, not the other way round; and what it says of a room's files."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

CLEAN = {
    "lib/arrows.txt": "upper: lower\nlower:\n",
    "lib/upper/upper.h": "/* call.c */\nint upper(void);\n",
    "lib/upper/call.c": '#include "upper/upper.h"\n#include "lower/lower.h"\nint upper(void) { return lower(); }\n',
    "lib/lower/lower.h": "/* answer.c */\nint lower(void);\n",
    "lib/lower/answer.c": '#include "lower/lower.h"\nint lower(void) { return 1; }\n',
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
    ("include", '#include "upper/upper.h"\nint lower(void) { return 1; }\n', 'lib/lower/answer.c: #include "upper/upper.h"'),
    ("call", "int upper(void);\nint lower(void) { return upper(); }\n", "lib/lower/answer.c: upper() of lib/upper/call.c"),
])
def test_an_arrow_that_points_up_fails(tmp_path, what, source, said):
    done = arrows(tmp_path, CLEAN | {"lib/lower/answer.c": source})
    assert done.returncode == 1
    assert f"{said}: lower may not use upper" in done.stdout


def test_another_rooms_private_header_is_refused(tmp_path):
    done = arrows(tmp_path, CLEAN | {"lib/lower/part.h": "int lower(void);\n",
                                     "lib/upper/call.c": '#include "lower/part.h"\nint upper(void) { return lower(); }\n'})
    assert done.returncode == 1
    assert 'lib/upper/call.c: #include "lower/part.h": of lower others include lower/lower.h only' in done.stdout


def test_a_circle_in_the_list_is_refused(tmp_path):
    done = arrows(tmp_path, CLEAN | {"lib/arrows.txt": "upper: lower\nlower: upper\n"})
    assert done.returncode == 1
    assert "lower: upper is not a room below it" in done.stderr


def test_the_header_in_brackets_is_the_one_to_include(tmp_path):
    files = {name.replace("lower.h", "door.h"): text.replace("lower/lower.h", "lower/door.h") for name, text in CLEAN.items()}
    done = arrows(tmp_path, files | {"lib/arrows.txt": "upper: lower\nlower (door.h):\n"})
    assert done.returncode == 0, done.stdout + done.stderr
    done = arrows(tmp_path, {"lib/lower/lower.h": "int lower(void);\n", "lib/upper/call.c": CLEAN["lib/upper/call.c"]})
    assert done.returncode == 1
    assert "of lower others include lower/door.h only" in done.stdout


INNER = CLEAN | {
    "lib/arrows.txt": "upper: lower\nlower:\n  lower/left:\n  lower/right:\n",
    "lib/lower/lower.h": "/* answer.c, left/, right/ */\nint lower(void);\n",
    "lib/lower/left/one.h": "int one(void);\n",
    "lib/lower/left/one.c": '#include "lower/lower.h"\nint one(void);\nint one(void) { return lower(); }\n',
    "lib/lower/right/two.c": "int two(void);\nint two(void) { return 2; }\n",
    "lib/lower/answer.c": '#include "lower/lower.h"\nint two(void);\nint lower(void) { return two(); }\n',
}


def test_an_inner_room_and_its_outer_one_use_each_other(tmp_path):
    done = arrows(tmp_path, INNER)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file, source, said", [
    ("lib/lower/left/one.c", "int two(void);\nint one(void) { return two(); }\n", "lower/left may not use lower/right"),
    ("lib/upper/call.c", '#include "lower/left/one.h"\nint upper(void) { return 1; }\n', "upper may not use lower/left"),
])
def test_an_inner_room_is_closed_to_others(tmp_path, file, source, said):
    done = arrows(tmp_path, INNER | {file: source})
    assert done.returncode == 1
    assert said in done.stdout


@pytest.mark.parametrize("files, said", [
    ({f"lib/lower/f{i}.h": "" for i in range(32)}, "lib/lower: 34 files, at most 32"),
    ({"lib/lower/lower.c": "", "lib/lower/lower.h": "/* answer.c, lower.c */"}, "lib/lower/lower.c: repeats the name of its folder"),
    ({"lib/lower/lower_part.h": ""}, "lib/lower/lower_part.h: repeats the name of its folder"),
    ({"lib/upper/part.h": "", "lib/lower/part.h": ""}, "lib/lower/part.h, lib/upper/part.h: one name for several files"),
    ({"lib/lower/more.c": ""}, "lib/lower/more.c: lib/lower/lower.h does not say what it is for"),
])
def test_a_file_that_nobody_finds_fails(tmp_path, files, said):
    done = arrows(tmp_path, CLEAN | files)
    assert done.returncode == 1
    assert said in done.stdout
