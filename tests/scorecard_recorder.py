"""Writes what the scorecard's tests found to a file: DUBITO_SCORECARD=card.jsonl pytest -m rel.

A test belongs to the checks that its docstring names ("Scorecard 4, 5: ..."). It may measure something as well:

    def test_extremes(scorecard):
        scorecard(4, cases=2160, non_finite=0)

The file begins with one record about the session (date, commit, source, a digest of every part of the package,
versions, machine, command), then holds one record per test function: how many of its cases passed, failed and were
skipped, every figure it measured, and a digest of the test's own code.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"Scorecards? ((?:\d+(?:, | and )?)+)")
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "pandas", "pyarrow", "hypothesis")


def _alone(path: Path) -> ModuleType:
    """A module without its package: whoever records must not import what is under test."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


_covered = _alone(ROOT / "src" / "dubito" / "verify" / "covered.py")
digest: Callable[..., str] = _covered.digest
digests: Callable[..., dict[str, str]] = _covered.digests


def checks_of(docstring: str | None) -> list[int]:
    """The numbers of the checks that a docstring names."""
    found = NAMED.match(docstring or "")
    return [int(n) for n in re.findall(r"\d+", found.group(1))] if found else []


def name_checks(items: Iterable[pytest.Item]) -> None:
    """Note at every test the checks that its docstring names."""
    for item in items:
        checks = checks_of(getattr(getattr(item, "function", None), "__doc__", None))
        if checks:
            item.user_properties.append(("checks", checks))


@pytest.fixture
def scorecard(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Note figures of one check: ``scorecard(22, kills=30, identical=30)``."""

    def note(check: int, **figures: Any) -> None:
        request.node.user_properties.append(("figures", [check, figures]))

    return note


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("DUBITO_SCORECARD")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)), "scorecard-recorder")


class Recorder:
    """Gathers the reports of a session; with several workers it lives in the process that starts them."""

    def __init__(self, path: Path) -> None:
        self.path, self.since = path, time.time()
        self.head = session(self.since)
        self.tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = [value for name, value in report.user_properties if name in ("checks", "figures")]
        ended = report.when == "call" or (report.when == "setup" and not report.passed)
        broken = report.when == "teardown" and report.failed
        if not told or not (ended or broken):
            return
        name = report.nodeid.split("[")[0]
        empty = {
            "test": name,
            "checks": [],
            "passed": 0,
            "failed": 0,
            "skipped": 0,
            "seconds": 0.0,
            "figures": {},
        }
        line = self.tests.setdefault(name, {**empty, "code": code(ROOT / name.split("::")[0])})
        line["failed" if broken else report.outcome] += 1
        line["seconds"] = round(line["seconds"] + report.duration, 2)
        for kind, value in report.user_properties:
            if kind == "checks":
                line["checks"] = sorted({*line["checks"], *value})
            elif kind == "figures" and report.passed:
                check, figures = value
                line["checks"] = sorted({*line["checks"], check})
                for key, figure in figures.items():
                    line["figures"].setdefault(str(check), {}).setdefault(key, []).append(figure)

    def pytest_sessionfinish(self) -> None:
        if not self.tests:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        records = [{"session": self.ended()}, *(self.tests[name] for name in sorted(self.tests))]
        text = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        self.path.write_text(text, encoding="utf-8")

    def ended(self) -> dict[str, Any]:
        """The session as it began, with its length; a part that was changed meanwhile is nobody's."""
        last = session(self.since)
        parts = {
            name: text if last["parts"].get(name) == text else "" for name, text in self.head["parts"].items()
        }
        return {**self.head, "seconds": last["seconds"], "parts": parts}


def session(since: float) -> dict[str, Any]:
    """When, what, where: enough to repeat a session and to tell which code it judged."""
    moment = datetime.datetime.fromtimestamp(since, datetime.UTC)
    return {
        "date": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "seconds": round(time.time() - since, 1),
        "command": " ".join([_program(), *map(_portable, sys.argv[1:])]),
        "commit": commit(),
        "source": source(),
        "parts": digests(ROOT / "src" / "dubito"),
        "versions": {"python": platform.python_version(), **installed()},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _portable(argument: str) -> str:
    """Of an absolute path, alone or after "=", the name: folders of this machine tell nobody anything."""
    option, _, path = argument.rpartition("=") if "=/" in argument else ("", "", argument)
    name = Path(path).name if path.startswith("/") else path
    return f"{option}={name}" if option else name


def _program() -> str:
    path = Path(sys.argv[0])
    return "pytest" if "pytest" in str(path) else f"python {path.parent.name}/{path.name}"


def installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def commit() -> str:
    """The commit under test, with a plus if the tree differs from it; "unknown" outside a repository."""
    git = ["git", "-C", str(ROOT)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=20
        )
        dirty = subprocess.run(
            [*git, "status", "--porcelain", "src"], capture_output=True, text=True, timeout=20
        )
    except OSError:
        return "unknown"
    return head.stdout.strip() + ("+" if dirty.stdout else "") if head.returncode == 0 else "unknown"


def source() -> str:
    """A SHA-256 over the package's Python files, which names the code even where there is no repository."""
    whole = hashlib.sha256()
    for path in sorted((ROOT / "src").rglob("*.py")):
        whole.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]


def helpers(test: Path) -> list[Path]:
    """Files beside a test that are no tests, and that it or one of them names."""
    beside = {p.stem: p for p in sorted(test.parent.glob("*.py")) if not p.name.startswith("test_")}
    ours = {name: p for name, p in beside.items() if p.parent.name != "tests"}
    found: dict[str, Path] = {}
    waiting = [test]
    while waiting:
        text = waiting.pop().read_text(encoding="utf-8")
        new = [name for name in ours if name not in found and re.search(rf"\b{name}\b", text)]
        found |= {name: ours[name] for name in new}
        waiting += [ours[name] for name in new]
    return [found[name] for name in sorted(found)]


def code(test: Path, root: Path = ROOT) -> str:
    """A digest of a test file and its helpers."""
    return digest([test, *helpers(test)], root)
