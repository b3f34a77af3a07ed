"""How calibrated is p_wrong under noise of every kind, with and without a hundred checked labels?

    python benchmarks/audit_simulated.py                every cell; to results/benchmarks/audit_simulated.jsonl
    python benchmarks/audit_simulated.py digits table-4
    python benchmarks/audit_simulated.py --summary          means from the lines

Data sets of which the truth is known: digits, MNIST (5,000 of it, 60 main axes) and two made tables. Noise: none,
symmetric, pairwise, and input-dependent: an item is mislabelled as often, and as the class, that a weaker model
holds likely (softmax regression on a few main axes, trained on other true labels), as people err where items are
hard. The audited model is a softmax regression, out of fold. Nothing here is real, and nothing of CIFAR-10N enters.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from audit_features import out_of_fold
from audit_scores import after, code, reliability

HERE = Path(__file__).resolve().parents[1]
LINES = HERE / "results" / "benchmarks" / "audit_simulated.jsonl"
DATA = ("digits", "mnist", "table-4", "table-3")
NOISES = ("none-0", "symmetric-0.1", "symmetric-0.3", "pair-0.3", "input-0.1", "input-0.2", "input-0.4")
MOST = 0.9  # of the labels of any one item that may be wrong
Array = Any


@lru_cache(1)
def features(name: str) -> tuple[Array, Array]:
    """Inputs (N, d) on one scale, and true labels."""
    from sklearn.datasets import load_digits, make_classification

    if name == "digits":
        x, y = load_digits(return_X_y=True)
    elif name == "mnist":
        from audit import features as subset

        x, y, _ = subset("mnist", 0)
    else:
        classes = int(name[-1])
        x, y = make_classification(
            4000,
            20,
            n_informative=10,
            n_redundant=4,
            n_classes=classes,
            class_sep=1.0 if classes == 4 else 0.7,
            flip_y=0,
            random_state=1,
        )
    x = np.asarray(x, np.float32)
    return (x - x.mean(0)) / x.std(), y


def weaker(x: Array, y: Array, seed: int) -> Array:
    """Out-of-fold probabilities of a model that sees a few main axes and learns from true labels."""
    from sklearn.decomposition import PCA

    axes = PCA(min(25, x.shape[1] // 2), random_state=seed).fit_transform(x).astype(np.float32)
    return out_of_fold(axes / axes.std(), y, seed + 7, decay=1e-3).astype(np.float64) + 1e-3


def noisy(x: Array, y: Array, noise: str, seed: int) -> Array:
    """Labels with this noise."""
    rng, (kind, _, text) = np.random.default_rng(seed + 100), noise.partition("-")
    rate, K, n = float(text), int(y.max()) + 1, len(y)
    if kind in ("none", "symmetric"):
        return np.where(rng.random(n) < rate, (y + rng.integers(1, K, n)) % K, y)
    if kind == "pair":
        return np.where(rng.random(n) < rate, (y + 1) % K, y)
    q = weaker(x, y, seed)
    q[np.arange(n), y] = 0
    low, high = 0.0, 1e4  # the multiple of the weaker model's doubt at which the mean rate is as asked
    for _ in range(60):
        middle = (low + high) / 2
        if np.minimum(middle * q.sum(1), MOST).mean() < rate:
            low = middle
        else:
            high = middle
    wrong = rng.random(n) < np.minimum(high * q.sum(1), MOST)
    to = (q / q.sum(1, keepdims=True)).cumsum(1)
    return np.where(wrong, (rng.random(n)[:, None] > to).sum(1).clip(0, K - 1), y)


def measure(name: str, noise: str, seed: int) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score

    from dubito._audit import audit

    x, y = features(name)
    labels = noisy(x, y, noise, seed)
    probs = out_of_fold(x, labels, seed, decay=2e-3)
    wrong = labels != y
    found = audit(labels, probs, bootstrap=0)
    error, bins = reliability(found.p_wrong, wrong)
    return {
        "data": name,
        "noise": noise,
        "seed": seed,
        "code": code(),
        "labels": len(y),
        "noise_rate": round(float(wrong.mean()), 4),
        "model_accuracy": round(float((probs.argmax(1) == y).mean()), 4),
        "average_precision": round(float(average_precision_score(wrong, found.p_wrong)), 4)
        if wrong.any()
        else None,
        "estimated_rate": round(found.noise_rate.value, 4),
        "calibration_error": round(error, 4),
        "bins": bins,
        "checked": {
            "spot 100": after(found.p_wrong, wrong, found.spot_check(100)),
            "top 100": after(found.p_wrong, wrong, found.order[:100]),
        },
    }


def read() -> list[dict[str, Any]]:
    """The newest line of every cell."""
    kept = {}
    for text in LINES.read_text(encoding="utf-8").splitlines() if LINES.is_file() else ():
        line = json.loads(text)
        kept[line["data"], line["noise"], line["seed"]] = line
    return list(kept.values())


def summary(lines: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Kind of noise -> mean calibration error before, after a spot sample, and after the first hundred."""
    out = {}
    for kind in dict.fromkeys(m["noise"].partition("-")[0] for m in lines):
        some = [m for m in lines if m["noise"].startswith(kind)]
        out[kind] = {
            "cells": len(some),
            "before": float(np.mean([m["calibration_error"] for m in some])),
            **{
                k: float(np.mean([m["checked"][k]["calibration_error"] for m in some]))
                for k in some[0]["checked"]
            },
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", default=list(DATA))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    done = {(m["data"], m["noise"], m["seed"]) for m in read() if m.get("code") == code()}
    cells = [(d, n, s) for s in range(options.seeds) for d in options.data for n in NOISES]
    for cell in cells if not options.summary else ():
        if cell in done:
            continue
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {
            "benchmark": "audit_simulated",
            "date": when,
            "python": platform.python_version(),
            **measure(*cell),
        }
        with LINES.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(*cell, line["calibration_error"], line["checked"]["spot 100"]["calibration_error"], flush=True)
    print(json.dumps(summary(read()), indent=1))


if __name__ == "__main__":
    main()
