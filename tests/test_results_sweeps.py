"""What the pages make of a sweep of one parameter."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from dubito.papers import item
from dubito.papers.results import Result

TOOLS = Path(__file__).resolve().parents[1] / "tools"


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    return importlib.import_module


def test_of_a_sweep_only_the_settings_of_a_table_are_ranked(tool):
    """The best of a curve was chosen by the test labels that rank it."""
    sweep = item("lukasik2020.figure2").make("paper", "cifar10", None)
    runs = [Result(c, {"test_accuracy": 0.8 + float(c.param("alpha", 0.0) or 0.0) / 10}) for c in sweep]
    assert {c.param("alpha") for c in sweep} > {0.1, 0.5, 0.9}
    (place,) = tool("results_groups").places(runs)
    assert sorted(m.name for m in place.methods) == ["backward", "ce", "forward", "smooth"]
    assert {m.config.param("alpha") for m in place.methods} == {None, 0.1}


def test_how_far_logits_are_driven(tool, tmp_path):
    path = tmp_path / "growth.jsonl"
    assert list(tool("results_lines").backward_growth(path)) == []
    rows = [
        {"alpha": 0.1, "dtype": "float32", "every": 50, "largest_logit": [1.0, 2.0, 3.0, 44.0]},
        {"alpha": 0.7, "dtype": "float64", "every": 50, "largest_logit": [1e4, None]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = [line for line in tool("results_lines").backward_growth(path) if line.startswith("|")]
    assert table == [
        "| alpha | type | step 100 | step 200 |",
        "|---|---|---:|---:|",
        "| 0.1 | float32 | 2 | 44 |",
        "| 0.7 | float64 | not a number |  |",
    ]
