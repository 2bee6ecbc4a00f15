# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Which tests `make test` runs: none that takes long for what ALL=1 sees anyway (the mark `whole`), and of a test with many cases a part.
Each commit has another part than the one before it, so that after PARTS of them all have run.
"""

import collections
import zlib

PARTS = 3
MANY = 3  # cases of one test: with fewer all of them run


def left_out(items, part):
    """Of the items those that are not in this part. part: a number, whose remainder counts."""
    cases = collections.defaultdict(list)
    for i in items:
        cases[i.nodeid.partition("[")[0]].append(i)
    out = set()
    for same in cases.values():
        # By the name: neighbours in the list would all have the same end ours, or the same family.
        others = [i for i in same if len(same) >= MANY and (zlib.crc32(i.nodeid.encode()) + part) % PARTS]
        out.update(others if len(others) < len(same) else others[1:])
    return [i for i in items if i in out or i.get_closest_marker("whole")]
