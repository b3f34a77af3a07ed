"""Mutation testing, module by module: a changed sign or constant of the mathematics does not go unnoticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))

from mutation_targets import TARGETS  # noqa: E402
from scorecard import UNKNOWN, reason  # noqa: E402

RECORDS = ROOT / "results" / "reliability"


def unexplained(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Survivors for which no reason is written down."""
    reasons = json.loads((RECORDS / "survivors.json").read_text(encoding="utf-8"))
    names = [(line["module"], survivor["mutant"]) for line in lines for survivor in line["survivors"]]
    return [(module, mutant) for module, mutant in names if reason(module, mutant, reasons) == UNKNOWN]


def mutate(*given: str) -> None:
    """Run the tool in a process of its own, which forks for every mutant."""
    command = [sys.executable, str(ROOT / "tools" / "mutate.py"), *given]
    subprocess.run(command, check=True, cwd=ROOT, timeout=7200)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tests take and reach, learned once for all modules."""
    folder = tmp_path_factory.mktemp("watched")
    mutate(
        "--all",
        "--minutes",
        "0",
        "--watched",
        str(folder / "watched.json"),
        "--out",
        str(folder / "none.jsonl"),
    )
    return folder / "watched.json"


@pytest.mark.nightly
@pytest.mark.parametrize("module", sorted(TARGETS))
def test_changes_are_noticed(module: str, watched: Path, tmp_path: Path) -> None:
    """Every mutant of a module is tried: a test notices it, or it is written down why none can."""
    out = tmp_path / "mutation.jsonl"
    mutate(module, "--jobs", str(os.cpu_count()), "--watched", str(watched), "--out", str(out))
    (line,) = [found for text in out.read_text().splitlines() if "module" in (found := json.loads(text))]
    assert line["tried"] == line["mutants"]
    assert unexplained([line]) == []
