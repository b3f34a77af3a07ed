"""Which parts of the package the tests of a check reach: what they import, and what that imports, to the end.

Read from the source, imports within functions included. A test reaches as well what the helpers beside it import,
if it names them: they are run in processes of their own. ``import dubito`` alone reaches everything, by the index;
so does a test that reads the folder "src" itself.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dubito.verify.covered import changed, digest, digests

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from scorecard_recorder import code, helpers  # noqa: E402

PACKAGE = "dubito"
UNNAMED = "code not named in the record"


class Imports:
    """The modules of one source tree, and which of them each imports."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self.files = {module_name(p, root / "src"): p for p in (root / "src" / PACKAGE).rglob("*.py")}

    @functools.cache  # noqa: B019 - one object per page
    def of(self, path: Path) -> frozenset[str]:
        """Names of modules of the package that a file imports; the bare package stands for all of it."""
        home = module_name(path, self.root / "src") if path in self.files.values() else ""
        package = home if path.name == "__init__.py" else home.rpartition(".")[0]
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.Constant) and node.value == "src":
                found.add(PACKAGE)
            elif isinstance(node, ast.ImportFrom):
                base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
                name = ".".join([*base, *([node.module] if node.module else [])])
                found |= {f"{name}.{alias.name}" for alias in node.names}
                found |= {name} - {PACKAGE}
                if name == PACKAGE:  # names of the index stand for the module that defines them
                    found |= {f"{PACKAGE}.{self.index[a.name]}" for a in node.names if a.name in self.index}
        return frozenset(found & self.files.keys())

    @functools.cached_property
    def index(self) -> dict[str, str]:
        """Public name -> module, as the package's own index has it."""
        tree = ast.parse(self.files[PACKAGE].read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_HOME":
                found: dict[str, str] = ast.literal_eval(node.value)
                return found
        return {}

    def reached(self, tests: Iterable[Path]) -> set[str]:
        """The parts (what lies right below the package) that some test files reach."""
        waiting = [name for test in tests for file in (test, *helpers(test)) for name in self.of(file)]
        seen: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name == PACKAGE:
                return {(f"{file}.__init__").split(".")[1] for file in self.files}
            if name not in seen:
                seen.add(name)
                waiting += self.of(self.files[name])
                if name.count(".") > 1:
                    waiting.append(name.rpartition(".")[0])
        return {name.split(".")[1] for name in seen}


class Marks:
    """What was changed since a record was made, seen from the source tree below `root`."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.imports = root, Imports(root)
        self.now = digests(root / "src" / PACKAGE)

    def covers(self, line: dict[str, Any]) -> list[str]:
        """The parts that the test of a record reaches."""
        return sorted(self._reached(self.root / line["test"].split("::")[0]))

    @functools.cache  # noqa: B019 - one object per page
    def _reached(self, test: Path) -> set[str]:
        return self.imports.reached([test])

    def changed(self, head: dict[str, Any], line: dict[str, Any]) -> list[str]:
        """Parts that the test reaches and that are other ones now; "tests" if it is the test itself."""
        if "parts" not in head:
            return [UNNAMED]
        test = self.root / line["test"].split("::")[0]
        rewritten = line.get("code") != code(test, self.root)
        return changed(head["parts"], self.now, self.covers(line)) + ["tests"] * rewritten

    def exists(self, line: dict[str, Any]) -> bool:
        """Whether the test of a record is still there; a record of a test that is gone says nothing."""
        file, _, name = line["test"].partition("::")
        path = self.root / file
        return path.is_file() and f"def {name.split('::')[-1]}(" in path.read_text(encoding="utf-8")

    def modules(self, head: dict[str, Any], lines: list[dict[str, Any]]) -> list[str]:
        """Parts of the modules that were covered or mutated and that are other ones now."""
        parts = {line.get("covered", line.get("module")).split(".")[0] for line in lines}
        return changed(head["parts"], self.now, parts) if "parts" in head else [UNNAMED]

    def mutated(self, lines: list[dict[str, Any]]) -> list[str]:
        """Modules that are not, or not known to be, those whose mutants were tried."""
        paths = [
            (m, self.root / "src" / PACKAGE / f"{m.replace('.', '/')}.py")
            for m in (x["module"] for x in lines)
        ]
        now = {m: digest([p], self.root) if p.is_file() else "" for m, p in paths}
        return [line["module"] for line in lines if line.get("code") != now[line["module"]]]


def module_name(path: Path, root: Path) -> str:
    """src/dubito/losses/robust.py -> dubito.losses.robust."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
