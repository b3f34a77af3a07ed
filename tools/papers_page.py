"""Write docs/papers.md: where each numbered result of the papers lives and which test checks it.

    python tools/papers_page.py            write the page
    python tools/papers_page.py --missing  list results without a function or a test

Nothing is imported: docstrings and marks are read from the source. A function says in its docstring

    Reference:
        lukasik2020 eq. 1, sec. 3.1

and a test carries ``@pytest.mark.paper("lukasik2020 eq. 1")``.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from paper_items import ITEMS, PENDING, TITLES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "papers.md"
ITEM = re.compile(r"(eq\.|lemma|theorem|alg\.|listing|sec\.|table|fig\.) [0-9A-Z][0-9A-Za-z.]*")
NUMBERED = ("eq.", "lemma", "theorem", "alg.", "listing")

# A name as shown and its file; (paper, item) -> where it lives.
Place = tuple[str, Path]
Places = dict[tuple[str, str], set[Place]]


class PageError(Exception):
    """A reference or mark that cannot be read."""


def references(root: Path = ROOT) -> Places:
    """What the docstrings in src say."""
    found: Places = {}
    for path, name, docstring in _docstrings(root / "src" / "dubito"):
        for paper, item in _cited(docstring, f"{path.relative_to(root)}, {name}"):
            found.setdefault((paper, item), set()).add((name, path.relative_to(root)))
    return found


def marks(root: Path = ROOT) -> Places:
    """What the tests are marked with."""
    found: Places = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            decorators = getattr(node, "decorator_list", [])
            for decorator in decorators:
                for text in _marked(decorator):
                    paper, _, item = text.partition(" ")
                    _known(paper, item, f"{path.relative_to(root)}, {node.name}")
                    found.setdefault((paper, item), set()).add((node.name, path.relative_to(root)))
    return found


def public_names(root: Path = ROOT) -> set[str]:
    """Everything that can be named in the third column of the list, as stage.name."""
    return {name for _, name, _ in _docstrings(root / "src" / "dubito")}


def missing(root: Path = ROOT) -> list[str]:
    """Results of the list that lack a function or a test and give no reason."""
    functions, tests = references(root), marks(root)
    lacking = []
    for paper, items in ITEMS.items():
        for item, _, about in items:
            if about.startswith("-"):
                continue
            gaps = []
            if not functions.get((paper, item)) and not about:
                gaps.append("function")
            if not tests.get((paper, item)):
                gaps.append("test")
            if gaps:
                lacking.append(f"{paper} {item}: no {' and no '.join(gaps)}")
    return lacking


def render(root: Path = ROOT) -> str:
    """The page as text."""
    functions, tests = references(root), marks(root)
    lines = [
        "# The papers, result by result",
        "",
        "Written by `python tools/papers_page.py` from the docstrings and the tests' marks; do not edit.",
        "Each row: a numbered result, what it says in a few words, where it lives, which tests check it.",
    ]
    for paper, items in ITEMS.items():
        lines += ["", f"## {TITLES[paper]}", "", f"Cited in docstrings as `{paper}`.", ""]
        lines += ["| item | says | function | tests |", "|---|---|---|---|"]
        for item, says, about in items:
            places = functions.get((paper, item), set()) | _about(about, root)
            where = about.removeprefix("-").strip() if about.startswith("-") else _links(places)
            if not where and (paper, item) in PENDING:
                where = "not in the library yet"
            lines.append(f"| {item} | {says} | {where} | {_links(tests.get((paper, item), set()))} |")
        listed = {item for item, _, _ in items}
        others = sorted({i for p, i in functions | tests if p == paper} - listed, key=_order)
        if others:
            lines += ["", "Sections, tables and figures:", "", "| item | function | tests |", "|---|---|---|"]
        for item in others:
            both = [_links(found.get((paper, item), set())) for found in (functions, tests)]
            lines.append(f"| {item} | {both[0]} | {both[1]} |")
    return "\n".join(lines) + "\n"


@cache
def _docstrings(package: Path) -> tuple[tuple[Path, str, str], ...]:
    """(file, stage.name, docstring) of every public function and class, methods included."""
    return tuple(_read(package))


def _read(package: Path) -> Iterator[tuple[Path, str, str]]:
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        stage = "dubito" if parts == ("__init__",) else parts[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef):
                continue
            inner = (
                [n for n in node.body if isinstance(n, ast.FunctionDef)]
                if isinstance(node, ast.ClassDef)
                else []
            )
            for definition, name in [(node, node.name), *((n, f"{node.name}.{n.name}") for n in inner)]:
                if not name.startswith("_") and "._" not in name:
                    yield path, f"{stage}.{name}", ast.get_docstring(definition) or ""


def _cited(docstring: str, where: str) -> Iterator[tuple[str, str]]:
    """The (paper, item) pairs of a docstring's reference section."""
    section = re.search(r"^Reference:\n((?:[ \t]+\S.*(?:\n|$))+)", docstring, re.MULTILINE)
    for line in section.group(1).splitlines() if section else []:
        paper, _, items = line.strip().partition(" ")
        if paper not in ITEMS:
            continue
        for item in items.split(", "):
            _known(paper, item, where)
            yield paper, item


def _known(paper: str, item: str, where: str) -> None:
    if paper not in ITEMS or not ITEM.fullmatch(item):
        raise PageError(f"{where}: cannot read {paper!r} {item!r}")
    if item.startswith(NUMBERED) and item not in {name for name, _, _ in ITEMS[paper]}:
        raise PageError(f"{where}: {paper} has no {item}")


def _marked(decorator: ast.expr) -> Iterator[str]:
    for node in ast.walk(decorator):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "paper":
            for argument in node.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise PageError(f"a paper mark needs plain strings, line {node.lineno}")
                yield argument.value


def _about(names: str, root: Path) -> set[Place]:
    """The functions named in the list, with their files."""
    if not names or names.startswith("-"):
        return set()
    homes = {name: path.relative_to(root) for path, name, _ in _docstrings(root / "src" / "dubito")}
    unknown = [name for name in names.split(", ") if name not in homes]
    if unknown:
        raise PageError(f"the list names {unknown[0]!r}, which does not exist")
    return {(name, homes[name]) for name in names.split(", ")}


def _links(places: set[Place]) -> str:
    return ", ".join(f"[`{_shown(name, path)}`](../{path.as_posix()})" for name, path in sorted(places))


def _shown(name: str, path: Path) -> str:
    """The name as it can be imported: by its module where its package does not hand it out."""
    if path.parts[0] != "src":
        return name
    stage, _, rest = name.partition(".")
    package = importlib.import_module("dubito" if stage == "dubito" else f"dubito.{stage}")
    if hasattr(package, rest.partition(".")[0]):
        return name
    return ".".join((*path.with_suffix("").parts[2:], rest))


def _order(item: str) -> tuple[str, list[tuple[int, str]]]:
    kind, _, number = item.partition(" ")
    return kind, [(int(d or 0), a) for d, a in re.findall(r"(\d*)([A-Za-z.]*)", number)]


if __name__ == "__main__":
    if "--missing" in sys.argv:
        sys.stdout.write("".join(line + "\n" for line in missing()))
    else:
        PAGE.write_text(render(), encoding="utf-8")
