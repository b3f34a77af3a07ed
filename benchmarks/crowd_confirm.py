"""Does the choice of the default for crowds hold on crowds that were not used to make it.

    python benchmarks/crowd_confirm.py fresh --processes 8     simulated crowds of new kinds, sizes and seeds
    python benchmarks/crowd_confirm.py summary                 the verdict; and each real set left out in turn

The criterion is that of `crowd_choice.py`, fixed before these crowds were drawn: of the candidates there, the
one whose worst family has the least mean regret in held-out log-likelihood per label. Confirmed means that the
default is that candidate here too, or stands behind it by less than `MARGIN` in that worst regret.

The families are new: groups of annotators who share a matrix, errors to neighbouring classes, skills that depend on
the class alone, annotators who fall asleep, a careful minority, and copies of another annotator's labels (which no
model here allows for). Numbers of classes, sizes and seeds are new as well. For the real sets a candidate is chosen
by the same criterion on all sets but one, and its accuracy on the one left out is compared with the default's.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch
from crowd_choice import OUT as CHOSEN
from crowd_choice import judged

from dubito.crowd import CrowdLabels

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd_confirm.jsonl"
MARGIN = 0.01
DEFAULT = "hierarchical"
SIZES = ((250, 30, 3), (600, 60, 6), (400, 150, 3))
CLASSES = (3, 6)
FIRST_SEED = 1000
FAMILIES = ("groups", "neighbours", "classes", "sleepers", "minority", "copies")
Rng = np.random.Generator
Array = Any


def _right(a: Array, K: int) -> Array:
    """Matrices of diagonal a ``(R, K)``, errors uniform."""
    return a[..., None] * np.eye(K) + (1 - a)[..., None] * (1 - np.eye(K)) / (K - 1)


def _matrices(family: str, rng: Rng, R: int, K: int) -> Array:
    if family == "groups":
        shared = np.stack([[rng.dirichlet(np.full(K, 0.4)) for _ in range(K)] for _ in range(3)])
        return (0.55 * np.eye(K) + 0.45 * shared)[rng.integers(3, size=R)]
    if family == "neighbours":
        far = np.abs(np.subtract.outer(np.arange(K), np.arange(K)))
        p = np.exp(-far / rng.gamma(4.0, 0.15, size=R)[:, None, None])
        return p / p.sum(-1, keepdims=True)
    if family == "classes":
        return _right(np.broadcast_to(rng.beta(5, 2, size=K), (R, K)), K)
    if family == "minority":
        return _right(np.where(rng.random(R) < 0.25, 0.97, 0.5)[:, None].repeat(K, 1), K)
    return _right(rng.beta(6, 2, size=R)[:, None].repeat(K, 1), K)


def drawn(family: str, K: int, size: tuple[int, int, int], seed: int) -> tuple[CrowdLabels, Array]:
    """A crowd and its truth."""
    items, R, each = size
    rng = np.random.default_rng([seed, K, items, FAMILIES.index(family), 77])
    truth = rng.choice(K, p=rng.dirichlet(np.full(K, 3.0)), size=items)
    busy = rng.gamma(1.0, size=R) + 0.05
    who = np.stack([rng.choice(R, size=each, replace=False, p=busy / busy.sum()) for _ in range(items)])
    p = _matrices(family, rng, R, K)[who, truth[:, None]].cumsum(-1)
    given = (rng.random(who.shape)[..., None] > p).sum(-1).clip(max=K - 1)
    if family == "sleepers":  # after a point of their own, four in ten answer at random
        tired = np.where(rng.random(R) < 0.4, rng.random(R), 1.0)[who] < np.linspace(0, 1, items)[:, None]
        given = np.where(tired, rng.integers(K, size=who.shape), given)
    if family == "copies":  # one label in five repeats the item's first
        given = np.where(rng.random(who.shape) < 0.2, given[:, :1], given)
    item = np.repeat(np.arange(items), each)
    return CrowdLabels(item, who.ravel(), given.ravel(), classes=K, item_ids=items, annotator_ids=R), truth


def _one(job: tuple[str, int, tuple[int, int, int], int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    family, K, size, seed = job
    found = judged(*drawn(family, K, size, seed))
    return {"family": family, "classes": K, "size": size, "seed": seed, "found": found}


def fresh(processes: int, seeds: int, few: bool) -> None:
    """All crowds, in an order of their own, so that a part of them is a fair sample."""
    jobs = list(product(FAMILIES, CLASSES, SIZES, range(FIRST_SEED, FIRST_SEED + seeds)))
    jobs = [jobs[i] for i in np.random.default_rng(7).permutation(len(jobs))][: 6 if few else None]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with Pool(processes) as pool, OUT.open("a", encoding="utf-8") as file:
        for line in pool.imap_unordered(_one, jobs):
            file.write(json.dumps({"benchmark": "crowd_confirm", **line}) + "\n")
            file.flush()


def worst_regret(lines: list[dict[str, Any]], place: str) -> dict[str, tuple[float, str, float]]:
    """Per candidate the mean regret of its worst family, that family, and the mean over families; best first."""
    regret: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    everywhere = set.intersection(*(set(line["found"]) for line in lines))
    for line in lines:
        best = max(v["held_out"] for v in line["found"].values())
        for name in everywhere:
            regret[name][line[place]].append(best - line["found"][name]["held_out"])
    found = {}
    for name, by in regret.items():
        mean = {f: float(np.mean(v)) for f, v in by.items()}
        worst = max(mean, key=mean.__getitem__)
        found[name] = mean[worst], worst, float(np.mean(list(mean.values())))
    return dict(sorted(found.items(), key=lambda pair: pair[1][0]))


def summary() -> None:
    """The verdict on fresh crowds, then every real set left out in turn."""
    lines = [json.loads(line) for line in OUT.read_text().splitlines()]
    ranked = worst_regret(lines, "family")
    print(f"{len(lines)} fresh crowds")
    for name, (worst, family, mean) in ranked.items():
        print(f"{name:28} worst {worst:.4f} ({family})  mean {mean:.4f}")
    behind = ranked[DEFAULT][0] - next(iter(ranked.values()))[0]
    print(
        f"the default is {behind:.4f} behind the best: {'confirmed' if behind < MARGIN else 'not confirmed'}"
    )
    sets = [x for x in map(json.loads, CHOSEN.read_text().splitlines()) if x["kind"] == "real"]
    sets = list({x["set"]: x for x in sets}.values())
    gains = []
    for left in sets:
        rest = [x for x in sets if x is not left]
        chosen = next(iter(worst_regret(rest, "set")))
        a, b = left["found"][chosen]["accuracy"], left["found"][DEFAULT]["accuracy"]
        gains.append(b - a)
        print(f"{left['set']:16} chosen on the others: {chosen:26} {a:.4f}   default {b:.4f}")
    print(f"mean gain of the default over the choice made on the other sets: {np.mean(gains):+.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("fresh", "summary"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--few", action="store_true", help="six crowds")
    options = parser.parse_args()
    if options.part == "fresh":
        fresh(options.processes, options.seeds, options.few)
    else:
        summary()


if __name__ == "__main__":
    main()
