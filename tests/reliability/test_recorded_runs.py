"""What committed lines say of two checks that no test can run: published cells re-run, overhead of the loop."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dubito.papers.results import read
from dubito.papers.statistics import Summary, prediction_interval
from dubito.verify.covered import changed, digests

ROOT = Path(__file__).resolve().parents[2]
HAND = ("by hand", "by hand, fused")
sys.path.append(str(ROOT / "tools"))

from covered_parts import UNNAMED, Imports  # noqa: E402

pytestmark = pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="the results are not here")


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    """The cells of the MNIST table that have both our seeds and a printed value."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        tool = importlib.import_module("results_cells")
    finally:
        sys.path.pop(0)
    found = tool.sections("englesson2023", read(ROOT / "results" / "englesson2023"))
    entries = [e for section in found if "mnist" in section.item.id for e in section.table.entries]
    return [e for e in entries if e.ours is not None and e.paper is not None and e.ours.seeds > 1]


def inside(value: float, summary: Summary, slack: float = 0.0) -> bool:
    low, high = prediction_interval(summary) or (value, value)
    return low - slack <= value <= high + slack


@pytest.mark.rel
def test_published_cells(cells: list[Any], scorecard: Callable[..., None]) -> None:
    """Scorecard 38: printed values as one more run of ours, and each of our runs as predicted by the others."""
    assert len(cells) >= 20
    rounding = 0.005  # two digits are printed
    printed = [inside(float(e.paper.value), e.ours, rounding) for e in cells]
    again = [
        inside(value, Summary({s: v for s, v in e.ours.values.items() if s != seed}), rounding)
        for e in cells
        if e.ours.seeds > 2
        for seed, value in e.ours.values.items()
    ]
    # Random cells that `dubito paper audit` ran once more with a seed of their own.
    lines = (ROOT / "results" / "audit" / "table1-mnist.jsonl").read_text(encoding="utf-8").splitlines()
    anew = [json.loads(line)["inside"] for line in lines]
    shares = [100 * sum(found) / len(found) for found in (printed, again, anew)]
    print(
        f"printed: {shares[0]:.1f} % of {len(printed)} cells; left out: {shares[1]:.1f} % of {len(again)} runs; "
        f"run anew: {shares[2]:.1f} % of {len(anew)}"
    )
    scorecard(38, inside_percent=min(shares), printed=len(printed), left_out=len(again), run_anew=len(anew))
    assert min(shares) >= 95


@pytest.mark.rel
def test_overhead_of_the_loop_is_recorded(scorecard: Callable[..., None]) -> None:
    """Scorecard 34: the last line of the benchmark for every network; its target is judged on the card."""
    lines = [json.loads(line) for line in (ROOT / "results/benchmarks/loop.jsonl").read_text().splitlines()]
    last = {line["network"]: line for line in lines if line["kind"] == "hand"}
    assert len(last) >= 3
    reached = Imports().reached([ROOT / "benchmarks" / "loop.py"]) - {"verify"}
    now = digests()
    for line in last.values():
        # Rounds taken in turn, and the quickest loop by hand: with the fused optimiser, as ours has it.
        by_hand = {name: turn["wall"] for name, turn in line["ours_in_turn"].items() if name in HAND}
        assert len(by_hand) == 2
        quickest = max(by_hand, key=by_hand.__getitem__)
        low, high = line["interval"][quickest]["wall"]
        assert low <= by_hand[quickest] <= high
        since = changed(line["parts"], now, reached) if "parts" in line else [UNNAMED]
        scorecard(
            34,
            network=line["network"],
            turns=line["rounds"],
            overhead_percent=round(100 * (by_hand[quickest] - 1), 2),
            overhead_interval=[round(100 * (end - 1), 2) for end in (low, high)],
            changed_since=since,
        )
