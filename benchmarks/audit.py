"""Finding wrong labels: dubito.audit beside cleanlab on the same out-of-fold probabilities.

    python benchmarks/audit.py            every cell: data x noise x model x seed
    python benchmarks/audit.py digits     one kind of data

Labels are corrupted (or, on CIFAR-10N, were given by people), scikit-learn models give out-of-fold probabilities,
and each method ranks the labels; the measure is the average precision at finding the wrong ones. The lines go to
results/benchmarks/audit.jsonl: one per cell, and a summary with a bootstrap interval of the mean gain over cells.
cleanlab is installed beside us (`pip install 'dubito[bench]'`); the real sets are found through DUBITO_DATA or in
shared/data beside the repository. Probabilities are kept in --cache, so that a second run is quick.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parents[1]
SEEDS = (0, 1, 2)
NOISES = ("symmetric-0.2", "symmetric-0.4", "pair-0.3", "asymmetric-0.4", "class-main")
HUMAN = ("aggre", "random1", "worst")
MODELS = ("logistic", "mlp")
Array = Any


def shared() -> Path:
    named = [Path(p) for p in os.environ.get("DUBITO_DATA", "").split(os.pathsep) if p]
    for folder in [*named, HERE.parent / "shared" / "data"]:
        if (folder / "images" / "meta.json").is_file():
            return folder
    raise SystemExit("the real sets are not on this machine (set DUBITO_DATA)")


def features(data: str, seed: int) -> tuple[Array, Array, Array]:
    """Features, true labels and row numbers of a subset drawn for this seed."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    if data == "digits":
        x, y = load_digits(return_X_y=True)
        return x / 16.0, y, np.arange(len(y))
    sys.path.insert(0, str(shared() / "images"))
    from load import load  # type: ignore[import-not-found]

    x, y = load("mnist" if data == "mnist" else "cifar10", "train")
    rows = np.sort(np.random.default_rng(seed).choice(len(y), 5000 if data == "mnist" else 8000, False))
    x, y = x[rows].reshape(len(rows), -1) / 255.0, y[rows]
    x = PCA(60 if data == "mnist" else 100, random_state=seed).fit_transform(x)
    return x / x.std(), y, rows


def noisy(data: str, noise: str, y: Array, rows: Array, seed: int) -> Array:
    from dubito import noise as noises

    if data == "cifar10n":
        with np.load(shared() / "crowd" / "cifar10n" / "cifar10n.npz") as people:
            return people[noise][rows].astype(np.int64)
    kind, _, rate = noise.partition("-")
    if kind == "symmetric":
        T = noises.flip_to_other(10, float(rate))
    elif kind == "pair":
        T = noises.pair_flip(10, float(rate))
    elif kind == "asymmetric":
        T = noises.asymmetric("mnist", float(rate))
    else:
        T = noises.class_dependent(rate)
    return np.asarray(noises.corrupt(y, T, torch.Generator().manual_seed(seed)))


def out_of_fold(model: str, x: Array, labels: Array, seed: int) -> Array:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.neural_network import MLPClassifier

    if model == "logistic":
        net = LogisticRegression(max_iter=300, C=0.3)
    else:
        net = MLPClassifier((64,), alpha=1e-3, early_stopping=True, max_iter=60, random_state=seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(net, x, labels, cv=folds, method="predict_proba")


def cells(only: str | None) -> Iterator[tuple[str, str, str, int]]:
    for data in ("digits", "mnist", "cifar10n"):
        if only in (None, data):
            for noise in HUMAN if data == "cifar10n" else NOISES:
                for model in MODELS:
                    for seed in SEEDS:
                        yield data, noise, model, seed


def cell(data: str, noise: str, model: str, seed: int, cache: Path) -> tuple[Array, Array, Array]:
    """Given labels, true labels, probabilities."""
    path = cache / f"{data}_{noise}_{model}_{seed}.npz"
    if not path.exists():
        x, y, rows = features(data, seed)
        labels = noisy(data, noise, y, rows, seed)
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, labels=labels, true=y, probs=out_of_fold(model, x, labels, seed))
    with np.load(path) as kept:
        return kept["labels"], kept["true"], kept["probs"]


def peers(labels: Array, probs: Array) -> dict[str, Array]:
    """cleanlab's scores, low for a suspicious label."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    out = {}
    for method in ("self_confidence", "normalized_margin", "confidence_weighted_entropy"):
        out[method] = get_label_quality_scores(labels, probs, method=method)
    for method in ("self_confidence", "normalized_margin"):
        out[f"{method}, adjusted"] = get_label_quality_scores(
            labels, probs, method=method, adjust_pred_probs=True
        )
    for rule in ("prune_by_noise_rate", "both", "confident_learning"):
        # What the filter calls an issue comes first, both parts in the order of self-confidence.
        issue = find_label_issues(labels, probs, filter_by=rule, n_jobs=1)
        out[f"issues by {rule}"] = out["self_confidence"] - 2.0 * issue
    return out


def reliability(p_wrong: Array, wrong: Array) -> tuple[float, list[list[float]]]:
    """Expected calibration error over ten bins of equal width, and the bins: labels, mean p_wrong, share wrong."""
    place = np.minimum((p_wrong * 10).astype(int), 9)
    bins = [
        [int((place == b).sum()), float(p_wrong[place == b].mean()), float(wrong[place == b].mean())]
        for b in range(10)
        if (place == b).any()
    ]
    return sum(n * abs(p - w) for n, p, w in bins) / len(wrong), [
        [n, round(p, 4), round(w, 4)] for n, p, w in bins
    ]


def measure(labels: Array, true: Array, probs: Array) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score

    from dubito._audit import audit

    wrong = labels != true
    found = audit(labels, probs)
    error, bins = reliability(found.p_wrong, wrong)
    T = np.zeros_like(found.transition)
    np.add.at(T, (true, labels), 1)
    T /= T.sum(1, keepdims=True)
    rate = found.noise_rate
    return {
        "labels": len(labels),
        "noise_rate": round(float(wrong.mean()), 4),
        "model_accuracy": round(float((probs.argmax(1) == true).mean()), 4),
        "average_precision": round(float(average_precision_score(wrong, found.p_wrong)), 4),
        "peers": {
            name: round(float(average_precision_score(wrong, -score)), 4)
            for name, score in peers(labels, probs).items()
        },
        "estimated_rate": [round(v, 4) for v in (rate.value, rate.low, rate.high)],
        "calibration_error": round(error, 4),
        "bins": bins,
        "transition_error": round(float(np.abs(T - found.transition).sum(1).mean()), 4),
        "kind": found.kind.name,
        "notes": len(found.notes),
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Gains over cleanlab; seeds of a cell are averaged, and cells are drawn anew for the interval."""
    generator = np.random.default_rng(0)
    names = list(lines[0]["peers"])
    keys = sorted({(m["data"], m["noise"], m["model"]) for m in lines})
    out: dict[str, Any] = {"cells": len(keys), "runs": len(lines)}
    for peer in [*names, "the best of all, cell by cell"]:
        gains = []
        for key in keys:
            runs = [m for m in lines if (m["data"], m["noise"], m["model"]) == key]
            theirs = [max(np.mean([m["peers"][n] for m in runs]) for n in names)]
            if peer in names:
                theirs = [m["peers"][peer] for m in runs]
            gains.append(np.mean([m["average_precision"] for m in runs]) - np.mean(theirs))
        draws = generator.choice(gains, (2000, len(gains))).mean(1)
        worst = int(np.argmin(gains))
        out[peer] = {
            "mean_gain": round(float(np.mean(gains)), 4),
            "interval": [round(float(v), 4) for v in np.percentile(draws, [2.5, 97.5])],
            "worst": round(float(gains[worst]), 4),
            "worst_cell": "/".join(keys[worst]),
        }
    for data in sorted({m["data"] for m in lines}):
        some = [m for m in lines if m["data"] == data]
        out[f"calibration error, {data}"] = round(float(np.mean([m["calibration_error"] for m in some])), 4)
        inside = [m["estimated_rate"][1] <= m["noise_rate"] <= m["estimated_rate"][2] for m in some]
        out[f"rate inside its interval, {data}"] = f"{sum(inside)} of {len(inside)}"
    return out


def record(**facts: Any) -> None:
    line = {
        "benchmark": "audit",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": {n: _version(n) for n in ("torch", "numpy", "scikit-learn", "cleanlab")},
        **facts,
    }
    path = HERE / "results" / "benchmarks" / "audit.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", choices=("digits", "mnist", "cifar10n"))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "dubito-audit")
    options = parser.parse_args()
    lines = []
    for data, noise, model, seed in cells(options.data):
        facts = measure(*cell(data, noise, model, seed, options.cache))
        lines.append({"data": data, "noise": noise, "model": model, "seed": seed, **facts})
        record(kind_of_line="cell", **lines[-1])
        print(data, noise, model, seed, facts["average_precision"], max(facts["peers"].values()), flush=True)
    total = summary(lines)
    record(kind_of_line="summary", data=options.data or "all", **total)
    print(json.dumps(total, indent=1))


if __name__ == "__main__":
    main()
