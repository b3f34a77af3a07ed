"""Which model should be the default for crowds: chosen by labels held out, on simulated crowds, without any truth.

    python benchmarks/crowd_choice.py simulated --processes 16     families of crowds x sizes x candidates
    python benchmarks/crowd_choice.py real                         the labels-only sets, the same candidates
    python benchmarks/crowd_choice.py summary                      the choice, from the recorded lines

Criterion: log-likelihood of held-out labels (`dubito.crowd.held_out`, five folds), and its regret against the best
candidate on the same crowd. A default has to be good on every crowd, so the candidate is chosen whose worst family
of simulated crowds has the least mean regret; the mean over families is shown beside it. Accuracy against the truth
is recorded but decides nothing; the real sets only show what the choice is worth there. Crowds are taken in an
order of their own, so that a part of them is a fair sample. Lines go to results/benchmarks/crowd_choice.jsonl
($OUT where that is set).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito.crowd import CrowdLabels, aggregate
from dubito.crowd.choice import held_out

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd_choice.jsonl"
Rng = np.random.Generator
Array = Any

CANDIDATES: dict[str, tuple[str, dict[str, float]]] = {
    "hierarchical": ("hierarchical", {}),
    "hierarchical, strength .5": ("hierarchical", {"strength": 0.5}),
    "hierarchical, strength 8": ("hierarchical", {"strength": 8.0}),
    "dawid-skene, strength .1": ("dawid-skene", {"strength": 0.1}),
    "dawid-skene": ("dawid-skene", {}),
    "dawid-skene, strength 10": ("dawid-skene", {"strength": 10.0}),
    "skill": ("skill", {}),
    "one-coin": ("one-coin", {}),
    "glad": ("glad", {}),
}
# items, annotators, labels per item
SIZES = ((300, 40, 5), (1000, 100, 3), (500, 25, 10), (500, 300, 4))


def _free(rng: Rng, R: int, K: int) -> Array:
    """Every annotator a matrix of their own."""
    A = np.stack([[rng.dirichlet(np.full(K, 0.5)) for _ in range(K)] for _ in range(R)])
    return 0.6 * np.eye(K) + 0.4 * A


def _coin(rng: Rng, R: int, K: int) -> Array:
    a = rng.beta(4, 2, size=R)[:, None, None]
    return a * np.eye(K) + (1 - a) * (1 - np.eye(K)) / (K - 1)


def _pattern(rng: Rng, R: int, K: int) -> Array:
    """Skills of annotators, easiness of classes, one pattern of errors."""
    B = rng.dirichlet(np.full(K, 0.3), size=K) + 1e-9
    B[np.diag_indices(K)] = 0
    B /= B.sum(1, keepdims=True)
    a = 1 / (1 + np.exp(-(rng.normal(1, 0.7, size=K) + rng.normal(0, 1, size=R)[:, None])))
    return a[..., None] * np.eye(K) + (1 - a)[..., None] * B


def _hammers(rng: Rng, R: int, K: int) -> Array:
    """Seven in ten right nine times in ten, the others at random."""
    a = np.where(rng.random(R) < 0.7, 0.9, 1 / K)[:, None, None]
    return a * np.eye(K) + (1 - a) * (1 - np.eye(K)) / (K - 1)


def _adversaries(rng: Rng, R: int, K: int) -> Array:
    """One in six has the names of the classes mixed up."""
    A = _coin(rng, R, K)
    for r in np.flatnonzero(rng.random(R) < 1 / 6):
        A[r] = A[r][rng.permutation(K)]
    return A


def _biased(rng: Rng, R: int, K: int) -> Array:
    """Everyone has a favourite class, given whatever the truth in a share of the cases."""
    share = rng.beta(1.5, 4, size=R)
    favourite = np.eye(K)[rng.integers(K, size=R)]
    return (1 - share)[:, None, None] * _coin(rng, R, K) + (share[:, None] * favourite)[:, None, :]


MATRICES: dict[str, Callable[[Rng, int, int], Array]] = {
    "free": _free,
    "coin": _coin,
    "pattern": _pattern,
    "hammers": _hammers,
    "adversaries": _adversaries,
    "biased": _biased,
}
FAMILIES = (*MATRICES, "difficulty", "lures")


def simulated(family: str, K: int, size: tuple[int, int, int], seed: int) -> tuple[CrowdLabels, Array]:
    """A crowd and its truth. Annotators are busy to different degrees; classes are not equally frequent."""
    items, R, each = size
    rng = np.random.default_rng([seed, K, items, FAMILIES.index(family)])
    truth = rng.choice(K, p=rng.dirichlet(np.full(K, 5.0)), size=items)
    busy = rng.gamma(1.0, size=R) + 0.05
    who = np.stack([rng.choice(R, size=each, replace=False, p=busy / busy.sum()) for _ in range(items)])
    if family == "difficulty":  # GLAD's model
        a = 1 / (
            1 + np.exp(-rng.normal(1.5, 1, size=R)[who] * np.exp(rng.normal(0, 0.7, size=items))[:, None])
        )
        wrong = (truth[:, None] + rng.integers(1, K, size=who.shape)) % K
        given = np.where(rng.random(who.shape) < a, truth[:, None], wrong)
    else:
        A = MATRICES.get(family, _coin)(rng, R, K)
        p = A[who, truth[:, None]].cumsum(-1)
        given = (rng.random(who.shape)[..., None] > p).sum(-1).clip(max=K - 1)
    if family == "lures":  # one item in six looks like another class, to everybody
        lure = np.where(rng.random(items) < 1 / 6, (truth + rng.integers(1, K, size=items)) % K, -1)
        fooled = (lure >= 0)[:, None] & (rng.random(who.shape) < 0.5)
        given = np.where(fooled, lure[:, None], given)
    item = np.repeat(np.arange(items), each)
    return CrowdLabels(item, who.ravel(), given.ravel(), classes=K, item_ids=items, annotator_ids=R), truth


def judged(crowd: CrowdLabels, truth: Array) -> dict[str, dict[str, float]]:
    """Per candidate the held-out log-likelihood per label, and accuracy, which decides nothing."""
    found = {}
    known = truth >= 0
    for name, (method, options) in CANDIDATES.items():
        if method == "glad" and len(crowd) > 12_000:
            continue
        likelihood = float(held_out(crowd, method, **options).mean())
        right = aggregate(crowd, method, **options).codes.numpy()[known] == truth[known]
        found[name] = {"held_out": round(likelihood, 6), "accuracy": round(float(right.mean()), 6)}
    return found


def _one(job: tuple[str, int, tuple[int, int, int], int]) -> dict[str, Any]:
    torch.set_num_threads(1)
    family, K, size, seed = job
    found = judged(*simulated(family, K, size, seed))
    return {"kind": "simulated", "family": family, "classes": K, "size": size, "seed": seed, "found": found}


def write(lines: list[dict[str, Any]]) -> None:
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with OUT.open("a", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps({"benchmark": "crowd_choice", **line}) + "\n")


def on_simulated(processes: int, seeds: int, few: bool) -> None:
    jobs = list(product(FAMILIES, (2, 4, 8), SIZES, range(seeds)))
    # In an order of its own, so that a part of the crowds is a fair sample of them.
    jobs = [jobs[i] for i in np.random.default_rng(0).permutation(len(jobs))][: 8 if few else None]
    with Pool(processes) as pool:
        for line in pool.imap_unordered(_one, jobs):
            write([line])


def on_real() -> None:
    from crowd import SETS, load

    for name in SETS:
        crowd, truth, _ = load(name)
        write([{"kind": "real", "set": name, "found": judged(crowd, truth)}])
        print(name, flush=True)


def summary() -> None:
    """Mean and worst regret of each candidate, over simulated crowds by family and over real sets."""
    lines = [json.loads(line) for line in OUT.read_text().splitlines()]
    for kind, place in (("simulated", "family"), ("real", "set")):
        regret, accuracy = defaultdict(lambda: defaultdict(list)), defaultdict(list)
        for line in (x for x in lines if x["kind"] == kind):
            best = max(v["held_out"] for v in line["found"].values())
            top = max(v["accuracy"] for v in line["found"].values())
            for name, value in line["found"].items():
                regret[name][line[place]].append(best - value["held_out"])
                accuracy[name].append(top - value["accuracy"])
        print(f"\n{kind}: regret in held-out log-likelihood per label; accuracy lost against the best of all")
        mean = {n: {f: float(np.mean(v)) for f, v in by.items()} for n, by in regret.items()}
        for name in sorted(mean, key=lambda n: max(mean[n].values())):
            worst = max(mean[name], key=mean[name].__getitem__)
            middle = np.mean(list(mean[name].values()))
            print(
                f"{name:28} worst {mean[name][worst]:.4f} ({worst})  mean {middle:.4f}   "
                f"accuracy lost {np.mean(accuracy[name]):.4f}, at most {np.max(accuracy[name]):.4f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("simulated", "real", "summary"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--few", action="store_true", help="eight crowds")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE / "benchmarks"))
    if options.part == "simulated":
        on_simulated(options.processes, options.seeds, options.few)
    elif options.part == "real":
        on_real()
    else:
        summary()


if __name__ == "__main__":
    main()
