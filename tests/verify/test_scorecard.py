"""The card: 38 checks, figures computed from recorded lines, pages that say what the lines say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dubito.verify import CHECKS, recorded_lines
from dubito.verify.scorecard import CARD, judge, recorded

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "scorecard.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    if not TOOL.is_file():
        pytest.skip("the tools are not here")
    spec = importlib.util.spec_from_file_location("scorecard_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def line(check: int, **figures: list[float]) -> dict[str, Any]:
    found = {str(check): figures}
    return {"test": "t", "checks": [check], "passed": 3, "failed": 0, "skipped": 0, "figures": found,
            "date": "2026-01-02T03:04:05Z", "torch": "2.11"}  # fmt: skip


def test_there_are_38() -> None:
    assert [entry.number for entry in CARD] == list(range(1, 39))
    assert [row["number"] for row in recorded()] == list(range(1, 39))
    assert len(CHECKS) >= 12
    assert {check.number for check in CHECKS} <= set(range(1, 39))


def test_figures_are_combined_and_judged() -> None:
    kills = CARD[21]
    good = line(22, kills=[80, 75], inside_a_save=[9, 8], different=[0, 0])
    found = judge(kills, [good, line(7)])
    assert found.passed
    assert found.figure == "kills 155, inside a save 17, different 0; 3 of 3 tests pass"
    assert (found.date, found.torch) == ("2026-01-02", "2.11")
    assert not judge(kills, [line(22, kills=[149], inside_a_save=[9], different=[0])]).passed
    assert not judge(kills, [line(22, kills=[155], inside_a_save=[9], different=[1])]).passed
    assert not judge(kills, [line(22, kills=[155], inside_a_save=[9])]).passed
    assert not judge(kills, [{**good, "failed": 1}]).passed
    assert judge(kills, []).figure == "not recorded"


def test_a_mutated_module_that_is_gone_does_not_count(tool: ModuleType, tmp_path: Path) -> None:
    head = {"session": {"date": "2026-01-02", "versions": {"torch": "2.13"}}}
    lines = [{"module": name, "tried": 1} for name in ("losses", "links", "integrals.never_there")]
    (tmp_path / "mutation.jsonl").write_text("\n".join(map(json.dumps, [head, *lines])), encoding="utf-8")
    assert [found["module"] for found in tool.mutation(tmp_path)[0]] == ["links", "losses"]


def test_the_latest_session_counts(tool: ModuleType, tmp_path: Path) -> None:
    for name, date, passed in (("b", "2026-01-02", 1), ("a", "2026-01-03", 2)):
        head = {"session": {"date": date, "command": "pytest", "versions": {"torch": "2"}}}
        text = "\n".join(json.dumps(record) for record in (head, {**line(1), "passed": passed}))
        (tmp_path / f"{name}.jsonl").write_text(text)
    here = tool.Marks()
    here.exists = lambda line: True
    here.covers = here.changed = lambda *given: []
    (found,) = tool.records(tmp_path, here)
    assert (found["passed"], found["date"]) == (2, "2026-01-03")


@pytest.mark.rel
def test_the_pages_are_those_the_lines_give(tool: ModuleType) -> None:
    """Scorecard 38: no hand-typed numbers on the card either."""
    assert tool.stale(ROOT) == [], "run: python tools/scorecard.py"


def test_what_verify_prints_of_the_others() -> None:
    text = "\n".join(recorded_lines({check.number for check in CHECKS}))
    for entry in CARD:
        assert (entry.title in text) == (entry.nightly or entry.number not in {c.number for c in CHECKS})
