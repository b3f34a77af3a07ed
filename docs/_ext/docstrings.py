"""Docstrings of this library as reStructuredText.

They are written to be read in an editor: plain paragraphs, indented formulas, `Arguments:` with one entry per line,
`Reference:` and `Example:`. Here paragraphs are kept as text (nothing in them is markup but `names` and
``code``), formulas become literal blocks, entries a list, and examples code.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

LISTS = ("Arguments", "Fields", "Returns", "Raises", "Shapes", "Yields")
SECTION = re.compile(r"^(Arguments|Fields|Returns|Raises|Shapes|Yields|Reference|Example|Examples):\s*$")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
ENTRY = re.compile(r"^([\w*, .]+?):\s+(.*)$", re.DOTALL)


def inline(text: str) -> str:
    """One paragraph: code stays code, everything else is plain text."""
    parts = CODE.split(" ".join(text.split()))
    return "".join(_code(p) if i % 2 else re.sub(r"([*|_\\])", r"\\\1", p) for i, p in enumerate(parts))


def _code(span: str) -> str:
    # An escaped space on both sides lets code stand next to letters.
    return f"\\ ``{span.strip('`').strip()}``\\ "


def convert(text: str) -> list[str]:
    """The docstring as lines of reStructuredText."""
    out: list[str] = []
    lines = dedent(text).splitlines()
    while lines:
        head = SECTION.match(lines[0])
        if head is None:
            out += _block(_take(lines))
            continue
        lines.pop(0)
        body: list[str] = []
        while lines and (not lines[0].strip() or lines[0].startswith(" ")):
            body.append(lines.pop(0))
        out += _section(head.group(1), dedent("\n".join(body)).strip("\n"))
    return out


def _take(lines: list[str]) -> list[str]:
    """The next paragraph or indented block."""
    while lines and not lines[0].strip():
        lines.pop(0)
    if not lines:
        return []
    indented = lines[0].startswith(" ")
    taken = []
    while lines and lines[0].strip() and not SECTION.match(lines[0]) and lines[0].startswith(" ") == indented:
        taken.append(lines.pop(0))
    return taken


def _block(lines: list[str]) -> list[str]:
    if not lines:
        return []
    if not lines[0].startswith(" "):
        return [inline("\n".join(lines)), ""]
    text = dedent("\n".join(lines))
    if text.startswith(">>>"):
        return _literal(text, "python")
    return _literal(re.sub("``", "", text), "text")


def _literal(text: str, language: str) -> list[str]:
    return [f".. code-block:: {language}", "", *("   " + line for line in text.splitlines()), ""]


def _section(name: str, body: str) -> list[str]:
    if name.startswith("Example"):
        return ["**Example**", "", *_literal(body, "python")]
    return [f"**{name}**", "", *_entries(body, strong=name in LISTS), ""]


def _entries(body: str, strong: bool) -> list[str]:
    entries: list[str] = []
    for line in body.splitlines():
        if line.startswith(" ") and entries:
            entries[-1] += "\n" + line
        elif line.strip():
            entries.append(line)
    out = []
    for entry in entries:
        found = ENTRY.match(entry) if strong else None
        out.append(f"- ``{found[1]}``: {inline(found[2])}" if found else f"- {inline(entry)}")
    return [*out, ""]


def _process(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = convert("\n".join(lines))


def setup(app: Any) -> dict[str, Any]:
    """Convert every docstring that autodoc reads."""
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
