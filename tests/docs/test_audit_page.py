"""The figures on the page about audits are those of the recorded lines, and the lines show what is claimed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("tool", ["audit_page.py", "auto_page.py"])
def test_page_says_what_the_lines_say(tool):
    command = [sys.executable, str(ROOT / "tools" / tool), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_cell_is_far_below_cleanlab(monkeypatch):
    """Self-confidence, confident learning and the whole pipeline; seeds of a cell averaged."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from audit_summary import newest, summary

    cells = newest(ROOT / "results" / "benchmarks" / "audit.jsonl")
    assert {m["data"] for m in cells} == {"digits", "mnist", "cifar10n"}
    assert any(m["noise"].startswith("asymmetric") for m in cells)
    found = summary(cells)
    for peer in ("self_confidence", "issues by confident_learning", "pipeline"):
        assert found[peer]["worst"] > -0.01
        assert found[peer]["interval"][0] > 0


def test_checked_labels_help_where_noise_hides(monkeypatch):
    """Under input-dependent noise p_wrong is far off; a hundred checks bring it back, and do no harm elsewhere."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from audit_simulated import read, summary

    found = summary(read())
    assert found["input"]["before"] > 2 * found["input"]["spot 100"]
    for kind in found.values():
        assert kind["spot 100"] < kind["before"] + 0.01
        assert kind["top 100"] < kind["before"] + 0.02


def test_the_automatic_choice_beats_cross_entropy_on_noise_and_keeps_up_without(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from auto_page import cells

    better = 0
    for case, lines in cells().items():
        d = np.array([line["difference"] for line in lines])
        error = d.std(ddof=1) / len(d) ** 0.5 * t.ppf(0.975, len(d) - 1)
        if "clean" in case:
            assert d.mean() + error >= 0, case
        else:
            assert d.mean() > 0, case
            better += d.mean() - error > 0
    assert better >= 6


def test_defaults_on_small_tables_learn_less_by_heart_than_before(monkeypatch):
    """Means over seeds of each table and noise; next to nothing is lost on clean labels."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from auto_page import small_cells

    cells = small_cells()
    for new, old in (("classifier", "classifier without decay"), ("auto", "auto before")):
        gains = {
            case: np.mean(
                [found[new][seed]["accuracy"] - found[old][seed]["accuracy"] for seed in found[old]]
            )
            for case, found in cells.items()
        }
        noisy = [gain for case, gain in gains.items() if "clean" not in case]
        assert len(noisy) == 15
        assert np.mean(noisy) > 0.03
        assert np.mean([gain for case, gain in gains.items() if "clean" in case]) > -0.005
        assert np.median(noisy) > 0.01


def test_a_forest_is_worth_it_on_thresholds_and_costs_nothing_elsewhere(monkeypatch):
    """Each case of the made tables: the classifier with a forest to choose, without, and a random forest alone."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from auto_page import KINDS, MADE_COLUMNS, small_cells

    cells = small_cells(MADE_COLUMNS)
    for kind, least in (("thresholds", 0.1), ("smooth", -0.01)):
        mine = [found for case, found in cells.items() if case.split()[0] in KINDS[kind]]
        assert len(mine) >= 12
        score = {
            h: np.array([f[h][20]["accuracy"] for f in mine]) for h in ("classifier", "classifier before")
        }
        assert (score["classifier"] - score["classifier before"]).mean() > least
        assert (score["classifier"] - [f["random forest"][20]["accuracy"] for f in mine]).mean() > 0.02


def test_three_human_labels_per_image_make_calibrated_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from audit_page import people

    runs = people()
    assert len(runs) >= 3
    for run in runs:
        assert run["labels"] == 24_000
        assert run["calibration_error"] < 0.04
        assert abs(run["estimated_rate"] - run["noise_rate"]) < 0.03
