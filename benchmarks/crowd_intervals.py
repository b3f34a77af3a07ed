"""Do the intervals of skills and matrices cover: a nominal 95 % on simulated crowds of several families.

    python benchmarks/crowd_intervals.py --processes 16
    python benchmarks/crowd_intervals.py --summary

Families are those of `crowd_choice.py` that draw labels from matrices, with two to ten labels per item. One line
per crowd and method goes to results/benchmarks/crowd_intervals.jsonl ($OUT where that is set): the share of
annotators whose true skill lies within, the share of matrix entries, and the mean width.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from crowd_choice import MATRICES

from dubito.crowd import CrowdLabels, aggregate

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd_intervals.jsonl"
METHODS = ("auto", "dawid-skene", "one-coin", "skill")
FAMILIES = ("coin", "pattern", "free", "hammers", "adversaries", "biased")
OUTSIDE = FAMILIES[
    4:
]  # people who answer the other way round, or with a favourite: no prior here expects them
EACH = (2, 3, 5, 10)
SIZES = ((400, 20), (1000, 60), (300, 60))


def _one(methods: Sequence[str], job: tuple[str, int, int, tuple[int, int], int]) -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    family, K, each, (items, R), seed = job
    rng = np.random.default_rng([seed, K, each, items, FAMILIES.index(family)])
    truth = rng.integers(K, size=items)
    A = MATRICES[family](rng, R, K)
    who = np.stack([rng.choice(R, size=each, replace=False) for _ in range(items)])
    p = A[who, truth[:, None]].cumsum(-1)
    given = (rng.random(who.shape)[..., None] > p).sum(-1).clip(max=K - 1)
    item = np.repeat(np.arange(items), each)
    crowd = CrowdLabels(item, who.ravel(), given.ravel(), classes=K, item_ids=items, annotator_ids=R)
    skill, lines = A.diagonal(axis1=1, axis2=2).mean(1), []
    for method in methods:
        result = aggregate(crowd, method)
        low, high = result.skill_intervals().numpy().T
        cells = result.confusion_intervals().numpy()
        lines.append(
            {
                "benchmark": "crowd_intervals",
                **{
                    "family": family,
                    "classes": K,
                    "each": each,
                    "items": items,
                    "annotators": R,
                    "seed": seed,
                },
                "method": method,
                "skills": round(float(((low <= skill) & (skill <= high)).mean()), 4),
                "entries": round(float(((cells[..., 0] <= A) & (cells[..., 1] >= A)).mean()), 4),
                "width": round(float((high - low).mean()), 4),
                "error": round(float(np.abs(result.skills.numpy() - skill).mean()), 4),
            }
        )
    return lines


def summary() -> None:
    """Coverage by method and labels per item: of families that a prior expects, their mean, and of each."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, OUT.read_text().splitlines()):
        found[line["method"], line["each"]].append(line)
    for (method, each), lines in sorted(found.items()):
        by = {f: np.mean([x["skills"] for x in lines if x["family"] == f] or [np.nan]) for f in FAMILIES}
        inside = [x for x in lines if x["family"] not in OUTSIDE]
        mean, entries = np.mean([x["skills"] for x in inside]), np.mean([x["entries"] for x in inside])
        parts = "  ".join(f"{f} {v:.3f}" for f, v in by.items())
        print(
            f"{method:12} {each:2} labels per item: skills {mean:.3f} ({parts})  entries {entries:.3f}"
            f"  width {np.mean([x['width'] for x in inside]):.3f}  entries by family "
            + " ".join(
                f"{f} {np.mean([x['entries'] for x in lines if x['family'] == f] or [np.nan]):.3f}"
                for f in FAMILIES
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed; 200 on were never used to choose"
    )
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--families", nargs="*", default=FAMILIES)
    parser.add_argument("--few", action="store_true", help="every 29th crowd")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if not options.summary:
        OUT.parent.mkdir(parents=True, exist_ok=True)
        every = product(
            options.families, (2, 4), EACH, SIZES, range(options.first, options.first + options.seeds)
        )
        with Pool(options.processes) as pool, OUT.open("a", encoding="utf-8") as file:
            for lines in pool.imap_unordered(
                partial(_one, options.methods), list(every)[:: 29 if options.few else 1]
            ):
                file.writelines(json.dumps(line) + "\n" for line in lines)
    summary()


if __name__ == "__main__":
    main()
