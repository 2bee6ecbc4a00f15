# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""As much of JSON Schema as docs/vma_stats.schema.json uses; a word that is not known here is an error."""

import re

KINDS = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
SAID = {"$schema", "$defs", "title", "description"}
KNOWN = SAID | {"$ref", "type", "anyOf", "enum", "minimum", "maximum", "pattern", "properties", "required", "additionalProperties", "items"}


def mistakes(value, schema, root, at="$"):
    """What is wrong with the value, a line each. root: the whole schema; at: where the value stands."""
    assert schema.keys() <= KNOWN, f"{at}: {schema.keys() - KNOWN}"
    if "$ref" in schema:
        assert schema["$ref"].startswith("#/$defs/"), schema
        return mistakes(value, root["$defs"][schema["$ref"][8:]], root, at)
    if "anyOf" in schema:
        each = [mistakes(value, one, root, at) for one in schema["anyOf"]]
        return [] if not all(each) else each[-1]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at}: {value!r} is none of {schema['enum']}"]
    kind = schema["type"]
    if type(value) is not KINDS[kind]:
        return [f"{at}: {value!r} is no {kind}"]
    return list(OF_KIND.get(kind, lambda *_: [])(value, schema, root, at))


def object_mistakes(value, schema, root, at):
    yield from (f"{at}: {name} is missing" for name in schema["required"] if name not in value)
    assert schema["additionalProperties"] is False
    for name, inner in value.items():
        if name in schema["properties"]:
            yield from mistakes(inner, schema["properties"][name], root, f"{at}.{name}")
        else:
            yield f"{at}: {name} is not in the schema"


def array_mistakes(value, schema, root, at):
    for n, item in enumerate(value):
        yield from mistakes(item, schema["items"], root, f"{at}[{n}]")


def integer_mistakes(value, schema, _root, at):
    if value < schema["minimum"]:
        yield f"{at}: {value} is less than {schema['minimum']}"
    if value > schema["maximum"]:
        yield f"{at}: {value} is more than {schema['maximum']}"


def string_mistakes(value, schema, _root, at):
    if not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} is not like {schema['pattern']}"


OF_KIND = {"object": object_mistakes, "array": array_mistakes, "integer": integer_mistakes, "string": string_mistakes}
