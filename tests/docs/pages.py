"""Reading the pages: which blocks of code they hold, and in which order they run.

A page is run as one program in an empty folder. Python blocks share their names; a block marked
``python file=NAME`` is written to that file first; lines that begin with ``$`` in a ``console`` block are
commands. Comments tell the runner what a reader need not see:

    <!-- run ... -->           Python to run at this place, such as making the file that the page then reads
    <!-- not run: reason -->   the next block is shown only
    <!-- nightly: reason -->   the page takes long
    <!-- needs: mnist -->      the page reads a published set
    <!-- prints -->            the next block is what the last one prints; a line "..." stands for any lines
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
GENERATED = ("papers.md", "which-method.md", "results/", "api/", "_build/")
COMMENT = re.compile(r"<!--\s*(run|not run|nightly|needs|prints)\b:?\s*(.*?)-->", re.DOTALL)
NUMBER = re.compile(r"(\d+(?:\.\d+)?)")
FENCE = re.compile(r"^(```+)(.*)$")


@dataclass(frozen=True)
class Block:
    """One piece of a page that runs: its language, text, line in the page, and the file it is written to."""

    language: str
    text: str
    line: int
    file: str = ""
    prints: str = ""


@dataclass(frozen=True)
class Page:
    path: Path
    blocks: tuple[Block, ...]
    nightly: str
    needs: tuple[str, ...]


def written() -> list[Path]:
    """The pages that people write; the generated ones hold no code."""
    found = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    return [DOCS / name for name in found if not name.startswith(GENERATED)]


def read(path: Path) -> Page:
    """The blocks of a page in order."""
    text = path.read_text(encoding="utf-8")
    pieces = [(m.start(), m.group(1), m.group(2).strip("\n")) for m in COMMENT.finditer(text)]
    blocks, skip = [], -1
    for at, language, body, info in fences(text):
        pieces.append((at, f"fence {language}", f"{info}\0{body}"))
    notes: dict[str, list[str]] = {"nightly": [], "needs": []}
    for at, kind, body in sorted(pieces):
        line = text.count("\n", 0, at) + 1
        if kind in notes:
            notes[kind].append(body.strip())
        elif kind == "not run":
            skip = 1
        elif kind == "prints":
            skip = 2
        elif skip == 2:
            skip = -1
            blocks[-1] = replace(blocks[-1], prints=body.partition("\0")[2])
        elif kind == "run":
            blocks.append(Block("python", body, line))
        elif skip == 1:
            skip = -1
        else:
            info, _, code = body.partition("\0")
            blocks.append(Block(kind.removeprefix("fence "), code, line + 1, _file(info)))
    kept = tuple(b for b in blocks if b.language in ("python", "console"))
    return Page(path, kept, "; ".join(notes["nightly"]), tuple(" ".join(notes["needs"]).split()))


def fences(text: str) -> list[tuple[int, str, str, str]]:
    """(offset, language, body, info) of every fenced block."""
    out, at, opened = [], 0, None
    for line in text.splitlines(keepends=True):
        found = FENCE.match(line.rstrip("\n"))
        if opened is None and found:
            opened = (at, found.group(1), found.group(2).strip(), [])
        elif opened is not None and found and line.strip() == opened[1]:
            info = opened[2]
            out.append((opened[0], info.split(" ")[0], "".join(opened[3]), info))
            opened = None
        elif opened is not None:
            opened[3].append(line)
        at += len(line)
    assert opened is None, "a block of code is not closed"
    return out


def alike(shown: str, said: str) -> bool:
    """Whether the output is what the page shows: words are the same, numbers within a twentieth or 0.02.

    >>> alike("wrong: 19.7 %", "wrong: 19.8 %"), alike("a\\n...\\nd", "a\\nb\\nc\\nd"), alike("a", "a\\nb")
    (True, True, False)
    """
    lines, wanted = said.strip().splitlines(), shown.strip().splitlines()
    for n, line in enumerate(wanted):
        if line.strip() == "...":
            rest = "\n".join(wanted[n + 1 :])
            return not rest or any(alike(rest, "\n".join(lines[k:])) for k in range(n, len(lines)))
        if n >= len(lines) or not _same(line, lines[n]):
            return False
    return len(lines) == len(wanted)


def _same(shown: str, said: str) -> bool:
    left, right = NUMBER.split(shown), NUMBER.split(said)
    if len(left) != len(right) or [" ".join(w.split()) for w in left[::2]] != [
        " ".join(w.split()) for w in right[::2]
    ]:
        return False
    pairs = zip(map(float, left[1::2]), map(float, right[1::2]))
    return all(abs(a - b) <= max(0.02, 0.05 * abs(a)) for a, b in pairs)


def _file(info: str) -> str:
    found = re.search(r"\bfile=(\S+)", info)
    return found.group(1) if found else ""
