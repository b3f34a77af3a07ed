"""Is the consensus as sure as it is right, and do intervals of skills cover, on real crowds whose truth is known.

    python benchmarks/crowd_calibration.py
    python benchmarks/crowd_calibration.py --summary

Per set and method: accuracy, log-loss of the truth under the posterior, expected calibration error in ten bins, and
the share of annotators (20 labels or more on items of known class, every class met) whose share of right labels,
averaged over classes, lies in the nominal 95 % interval. crowd-kit is run beside where it is installed. The truth
judges only; no method sees it. Lines go to results/benchmarks/crowd_calibration.jsonl ($OUT where that is set).
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowd import SETS, load
from dubito.crowd import CrowdLabels, aggregate
from dubito.metrics import ece

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd_calibration.jsonl"
METHODS = ("auto", "dawid-skene", "one-coin", "soft-vote")
LARGE = 50_000  # labels above which crowd-kit's model takes too long
Array = Any


def judged(p: Array, truth: Array) -> dict[str, float]:
    """Accuracy, log-loss and calibration of posteriors ``(items, classes)`` where the truth is known."""
    p, truth = np.asarray(p, dtype=np.float64)[truth >= 0], truth[truth >= 0]
    mine = np.clip(p[np.arange(len(truth)), truth], 1e-12, 1.0)
    p = p / p.sum(1, keepdims=True)
    error = ece(torch.from_numpy(p), torch.from_numpy(truth), bins=10)
    found = {"accuracy": (p.argmax(1) == truth).mean(), "log_loss": -np.log(mine).mean(), "ece": error}
    return {name: round(float(value), 5) for name, value in found.items()}


def covered(crowd: CrowdLabels, truth: Array, intervals: Array) -> dict[str, float]:
    """Share of the annotators with enough labels whose skill lies within the interval, and their number."""
    item, who, label = (t.numpy() for t in (crowd.item, crowd.annotator, crowd.label))
    known = truth[item] >= 0
    item, who, label = item[known], who[known], label[known]
    n = np.zeros((crowd.num_annotators, crowd.num_classes))
    right = np.zeros_like(n)
    np.add.at(n, (who, truth[item]), 1)
    np.add.at(right, (who, truth[item]), label == truth[item])
    enough = (n > 0).all(1) & (n.sum(1) >= 20)
    skill = (right / n.clip(1)).mean(1)[enough]
    low, high = intervals[enough].T
    return {
        "people": int(enough.sum()),
        "covered": round(float(((low <= skill) & (skill <= high)).mean()), 4),
    }


def of_crowd_kit(columns: list[Array], items: int, classes: int) -> Array | None:
    """Posteriors of crowd-kit's Dawid-Skene, None without it."""
    try:
        import pandas as pd
        from crowdkit.aggregation import DawidSkene
    except ImportError:
        return None
    frame = pd.DataFrame(dict(zip(("task", "worker", "label"), columns)))
    found = DawidSkene(n_iter=100).fit_predict_proba(frame)
    table = np.zeros((items, classes))
    table[np.ix_(found.index.to_numpy(), found.columns.to_numpy())] = found.to_numpy()
    return np.where(table.sum(1, keepdims=True) > 0, table, 1 / classes)


def lines_of(name: str) -> list[dict[str, Any]]:
    """One line per method."""
    crowd, truth, columns = load(name)
    lines: list[dict[str, Any]] = []
    for method in METHODS:
        result = aggregate(crowd, method)
        line = {"method": method, **judged(result.probabilities.numpy(), truth)}
        line |= covered(crowd, truth, result.skill_intervals().numpy())
        lines.append({**line, "dependence": result.dependence})
    other = of_crowd_kit(columns, crowd.num_items, crowd.num_classes) if len(crowd) <= LARGE else None
    if other is not None:
        lines.append({"method": "crowd-kit dawid-skene", **judged(other, truth)})
    return [{"benchmark": "crowd_calibration", "set": name, **line} for line in lines]


def summary() -> None:
    """Every set, then the means of each method over the sets that all of them finished."""
    lines = [json.loads(line) for line in OUT.read_text().splitlines()]
    by: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        by[line["method"]][line["set"]] = line
        cover = f"{line['covered']:.2f} of {line['people']}" if "covered" in line else ""
        print(
            f"{line['set']:15} {line['method']:22} accuracy {line['accuracy']:.4f}  log-loss {line['log_loss']:.3f}"
            f"  calibration error {line['ece']:.3f}  skills covered {cover}"
        )
    common = set.intersection(*(set(found) for found in by.values()))
    print(f"\nmean of {len(common)} sets")
    for method, found in by.items():
        means = {k: np.mean([found[s][k] for s in common]) for k in ("accuracy", "log_loss", "ece")}
        print(f"{method:22} " + "  ".join(f"{k} {v:.4f}" for k, v in means.items()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if not options.summary:
        torch.set_num_threads(1)
        OUT.parent.mkdir(parents=True, exist_ok=True)
        with OUT.open("w", encoding="utf-8") as file:
            for name in SETS:
                file.writelines(json.dumps(line) + "\n" for line in lines_of(name))
                file.flush()
    summary()


if __name__ == "__main__":
    main()
