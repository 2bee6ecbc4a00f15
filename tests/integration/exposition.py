# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Prometheus' text format, version 0.0.4, read strictly: what its own parser only puts up with is an error here, and what
`promtool check metrics` complains of, too.
"""

import re

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
VALUE = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|NaN|[-+]?Inf")


class Family:
    def __init__(self, name, help):
        self.name, self.help, self.kind = name, help, None
        self.samples = {}  # from the labels, as a sorted tuple of pairs, to the value as text

    def value(self, **labels):
        """Of the one sample that has these labels, and maybe others."""
        found = [v for k, v in self.samples.items() if labels.items() <= dict(k).items()]
        assert len(found) == 1, (self.name, labels, found)
        return float(found[0])

    def labels(self):
        return {name for key in self.samples for name, _ in key}


def unescape(text):
    return re.sub(r"\\(.)", lambda m: "\n" if m.group(1) == "n" else m.group(1), text)


def labels_of(text, line):
    """What stands between the braces: each label once."""
    found, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        assert m, f"no label at {text[at:]!r} in {line!r}"
        assert m.group(1) not in found, f"{m.group(1)} twice in {line!r}"
        assert not m.group(1).startswith("__"), line
        found[m.group(1)] = unescape(m.group(2))
        at = m.end()
        if at < len(text):
            assert text[at] == "," and at + 1 < len(text), line
            at += 1
    return found


def sample_of(line, family):
    name = NAME.match(line)
    assert name and name.group() == family.name, f"{line!r} among the samples of {family.name}"
    rest, labels = line[name.end():], {}
    if rest.startswith("{"):
        # A closing brace may stand in a label's text.
        end = re.match(r'\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}', rest)
        assert end, line
        labels, rest = labels_of(end.group()[1:-1], line), rest[end.end():]
    assert rest[:1] == " " and VALUE.fullmatch(rest[1:]), f"no value in {line!r}"
    return tuple(sorted(labels.items())), rest[1:]


def check_family(f):
    assert f.kind in ("counter", "gauge"), f"{f.name} is a {f.kind}"
    assert f.help and f.help.endswith("."), f"{f.name}: {f.help!r}"
    assert (f.kind == "counter") == f.name.endswith("_total"), f"{f.name} is a {f.kind}"
    assert not re.search(r"_(us|ms|usec|kilobytes|percent)(_|$)", f.name), f"{f.name}: not a base unit"
    assert len({frozenset(dict(k)) for k in f.samples}) <= 1, f"{f.name}: samples with other labels"
    for value in f.samples.values():
        assert f.kind != "counter" or float(value) >= 0, f"{f.name} {value}"


def parse(text):
    """The families by name."""
    families, family = {}, None
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, help = line.split(" ", 3)
            assert NAME.fullmatch(name) and name not in families, f"{name} comes twice"
            assert not family or family.kind, f"{family.name} has no TYPE"
            assert not re.search(r"\\[^\\n]|\\$", help), line
            family = families[name] = Family(name, unescape(help))
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert family and name == family.name and family.kind is None and not family.samples, line
            family.kind = kind
        else:
            assert family and family.kind, f"{line!r} before its HELP and TYPE"
            key, value = sample_of(line, family)
            assert key not in family.samples, f"twice: {line!r}"
            family.samples[key] = value
    for f in families.values():
        check_family(f)
    return families
