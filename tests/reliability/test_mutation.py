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

from mutation_known import known  # noqa: E402
from mutation_targets import TARGETS  # noqa: E402
from mutations import functions  # noqa: E402
from scorecard import UNKNOWN, mutation, reason  # noqa: E402

RECORDS = ROOT / "results" / "reliability"
SOURCE = ROOT / "src" / "dubito"
LEAST = 0.9
# In the packages of mathematics: what checks, reports and hands on, and what needs a GPU.
NO_MATHEMATICS = {
    *(
        "integrals.border",
        "integrals.report",
        "integrals.fused",
        "integrals.fused_all",
        "integrals.fused_mean",
    ),
    "integrals.standalone",  # the reference that others are compared with
    *("noise._checks", "metrics._inputs", "estimate.folds"),
}


def unexplained(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Survivors for which no reason is written down."""
    reasons = json.loads((RECORDS / "survivors.json").read_text(encoding="utf-8"))
    names = [(line["module"], survivor["mutant"]) for line in lines for survivor in line["survivors"]]
    return [(module, mutant) for module, mutant in names if reason(module, mutant, reasons) == UNKNOWN]


def score(line: dict[str, Any]) -> float:
    """The share of the mutants tried that was noticed; 1 for a module without any."""
    return len(line["noticed"]) / line["tried"] if line["tried"] else 1.0


@pytest.mark.parametrize("package", ["losses", "channels", "integrals", "noise", "metrics", "estimate"])
def test_every_module_of_mathematics_is_mutated(package: str) -> None:
    """A new module is a target, or it is said above that it is none."""
    names = {f"{package}.{path.stem}" for path in (SOURCE / package).glob("*.py")}
    ours = {name for name in names if "triton" not in name and not name.endswith("__init__")}
    assert ours - NO_MATHEMATICS <= TARGETS.keys()
    assert not NO_MATHEMATICS & TARGETS.keys()


def test_what_was_found_of_a_function_holds_while_it_reads_the_same(tmp_path: Path) -> None:
    text = (SOURCE / "targets.py").read_text(encoding="utf-8")
    now = functions(text)
    assert {"", "smooth", "corrected"} <= now.keys()
    assert functions(text + "\n\ndef more(x):\n    return x + 1\n").items() > now.items()
    line = {
        "module": "targets",
        "functions": {**now, "smooth": "another"},
        "noticed": ["corrected: 0 -> 1", "smooth: 1 -> 2"],
        "survivors": [{"mutant": ": 1 -> 2", "line": 1}, {"mutant": "smooth: 2 -> 3", "line": 2}],
    }
    (tmp_path / "lines.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert known([tmp_path / "lines.jsonl"]) == {"targets": ({"corrected: 0 -> 1"}, {": 1 -> 2"})}


@pytest.mark.skipif(not RECORDS.is_dir(), reason="the results are not here")
def test_recorded_modules_reach_nine_tenths() -> None:
    """Every module by itself, all of its mutants tried, and a reason for each that was not noticed."""
    lines = mutation(RECORDS)[0]
    assert len(lines) > 70
    assert {line["module"]: score(line) for line in lines if score(line) < LEAST} == {}
    assert [line["module"] for line in lines if line["tried"] < line["mutants"]] == []
    assert unexplained(lines) == []


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
    """Every mutant of a module is tried: a test notices nine of ten, and of the others it is written down why."""
    out = tmp_path / "mutation.jsonl"
    mutate(module, "--jobs", str(os.cpu_count()), "--watched", str(watched), "--out", str(out))
    (line,) = [found for text in out.read_text().splitlines() if "module" in (found := json.loads(text))]
    assert line["tried"] == line["mutants"]
    assert score(line) >= LEAST
    assert unexplained([line]) == []
