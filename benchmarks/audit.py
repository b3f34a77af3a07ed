"""Finding wrong labels: dubito.audit beside cleanlab on the same out-of-fold probabilities and beside its pipeline.

    python benchmarks/audit.py                        every cell: data x noise x model x seed
    python benchmarks/audit.py digits --workers 8     one kind of data, cells side by side

Labels are corrupted (or, on CIFAR-10N, were given by people), scikit-learn models give out-of-fold probabilities,
and each method ranks the labels; the measure is the average precision at finding the wrong ones. cleanlab's
pipeline (`CleanLearning.find_label_issues`) gets the features and the same untrained model and trains it itself. On
CIFAR-10N there are also better models, softmax regression on patch features (benchmarks/audit_features.py) and a
convolutional network (benchmarks/audit_networks.py), whose probabilities are looked for in --cache. The lines go to
results/benchmarks/audit.jsonl: one per cell, and a summary of the newest line of each with a bootstrap interval
of the mean gain. cleanlab is installed beside us (`pip install 'dubito[bench]'`); the real sets are found through
DUBITO_DATA or in shared/data beside us.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from audit_scores import after, code, reliability, share
from audit_summary import newest, summary

HERE = Path(__file__).resolve().parents[1]
SEEDS = (0, 1, 2)
NOISES = ("symmetric-0.2", "symmetric-0.4", "pair-0.3", "asymmetric-0.4", "class-main")
HUMAN = ("aggre", "random1", "worst")
MODELS = ("logistic", "mlp")
PATCHES = "patches"
NETWORK = "network"
MADE_ELSEWHERE = (PATCHES, NETWORK)  # their probabilities come from audit_features.py and audit_networks.py
KEYS = ("data", "noise", "model", "seed")
Array = Any
LINES = HERE / "results" / "benchmarks" / "audit.jsonl"


@lru_cache(2)
def published(name: str) -> tuple[Array, Array]:
    """Inputs (N, d) and true labels of a published set."""
    from dubito import data

    beside = HERE.parent / "shared" / "data"
    if not os.environ.get("DUBITO_DATA") and beside.is_dir():
        os.environ["DUBITO_DATA"] = str(beside)
    found = data.load(name, "train")
    return found.inputs.flatten(1).numpy() / np.float32(255), found.labels.numpy()  # type: ignore[union-attr]


def features(data: str, seed: int) -> tuple[Array, Array, Array]:
    """Features, true labels and row numbers of a subset drawn for this seed."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA

    if data == "digits":
        x, y = load_digits(return_X_y=True)
        return x / 16.0, y, np.arange(len(y))
    x, y = published("mnist" if data == "mnist" else "cifar10")
    rows = np.sort(np.random.default_rng(seed).choice(len(y), 5000 if data == "mnist" else 8000, False))
    x, y = x[rows].astype(np.float64), y[rows]
    x = PCA(60 if data == "mnist" else 100, random_state=seed).fit_transform(x)
    return x / x.std(), y, rows


@lru_cache(3)
def _people(which: str) -> Array:
    from dubito import data

    return data.load("cifar10n", "train", labels=which).labels.numpy()


def noisy(data: str, noise: str, y: Array, rows: Array, seed: int) -> Array:
    from dubito import noise as noises

    if data == "cifar10n":
        return _people(noise)[rows]
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


def network(model: str, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    if model == "logistic":
        return LogisticRegression(max_iter=300, C=0.3)
    return MLPClassifier((64,), alpha=1e-3, early_stopping=True, max_iter=60, random_state=seed)


def out_of_fold(model: str, x: Array, labels: Array, seed: int) -> Array:
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return cross_val_predict(network(model, seed), x, labels, cv=folds, method="predict_proba")


def pipeline(data: str, noise: str, model: str, seed: int, cache: Path) -> Array:
    """Scores of cleanlab from features and labels alone; what it calls an issue comes first."""
    path = cache / f"pipeline_{data}_{noise}_{model}_{seed}.npy"
    if not path.exists():
        from cleanlab.classification import CleanLearning

        x, y, rows = features(data, seed)
        labels = noisy(data, noise, y, rows, seed)
        found = CleanLearning(network(model, seed), seed=seed, cv_n_folds=5, verbose=False).find_label_issues(
            x, labels
        )
        np.save(path, found["label_quality"].to_numpy() - 2.0 * found["is_label_issue"].to_numpy())
    return np.load(path)


def cells(only: str | None, cache: Path) -> Iterator[tuple[str, str, str, int]]:
    for data in ("digits", "mnist", "cifar10n"):
        if only in (None, data):
            for noise in HUMAN if data == "cifar10n" else NOISES:
                for model in (*MODELS, *MADE_ELSEWHERE) if data == "cifar10n" else MODELS:
                    for seed in SEEDS:
                        if (
                            model not in MADE_ELSEWHERE
                            or (cache / f"{data}_{noise}_{model}_{seed}.npz").exists()
                        ):
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
        labels, true, probs = kept["labels"], kept["true"], kept["probs"]
    if model in MADE_ELSEWHERE:  # as many labels as the other models of this data judge
        some = np.sort(np.random.default_rng(seed).choice(len(labels), min(8000, len(labels)), False))
        labels, true, probs = labels[some], true[some], probs[some]
    return labels, true, probs


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


def recorded(data: str, noise: str, model: str, seed: int, right: float) -> tuple[dict[str, float], bool]:
    """What cleanlab reached in the last line of the cell, and whether by probabilities as right as these.

    Training on pixels can end elsewhere on another machine; the pipeline, which trains for itself, holds on.
    """
    for line in newest(LINES):
        if tuple(line[k] for k in KEYS) == (data, noise, model, seed):
            return dict(line["peers"]), line["model_accuracy"] == right
    return {}, False


def measure(
    data: str, noise: str, model: str, seed: int, cache: Path, bootstrap: int = 30, again: bool = False
) -> dict[str, Any]:
    from sklearn.metrics import average_precision_score

    from dubito._audit import audit

    labels, true, probs = cell(data, noise, model, seed, cache)
    wrong = labels != true
    right = round(float((probs.argmax(1) == true).mean()), 4)
    theirs, same = recorded(data, noise, model, seed, right) if again else ({}, False)
    if not same:
        scores = peers(labels, probs)
        if model not in MADE_ELSEWHERE and "pipeline" not in theirs:
            scores["pipeline"] = pipeline(data, noise, model, seed, cache)
        found_by = {n: round(float(average_precision_score(wrong, -score)), 4) for n, score in scores.items()}
        theirs = {**theirs, **found_by}
    found = audit(labels, probs, bootstrap=bootstrap)
    error, bins = reliability(found.p_wrong, wrong)
    T = np.zeros_like(found.transition)
    np.add.at(T, (true, labels), 1)
    T /= T.sum(1, keepdims=True)
    rate = found.noise_rate
    return {
        "data": data,
        "noise": noise,
        "model": model,
        "seed": seed,
        "labels": len(labels),
        "bootstrap": bootstrap,
        "code": code(),
        "noise_rate": round(float(wrong.mean()), 4),
        "model_accuracy": right,
        "average_precision": round(float(average_precision_score(wrong, found.p_wrong)), 4),
        "peers": theirs,
        "above_0.99": share(found.p_wrong > 0.99, wrong),
        "above_0.9": share(found.p_wrong > 0.9, wrong),
        "estimated_rate": [round(v, 4) for v in (rate.value, rate.low, rate.high)],
        "calibration_error": round(error, 4),
        "bins": bins,
        "transition_error": round(float(np.abs(T - found.transition).sum(1).mean()), 4),
        "kind": found.kind.name,
        "notes": len(found.notes),
        "checked": {
            "spot 100": after(found.p_wrong, wrong, found.spot_check(100)),
            "spot 300": after(found.p_wrong, wrong, found.spot_check(300)),
            "top 100": after(found.p_wrong, wrong, found.order[:100]),
        },
    }


def record(**facts: Any) -> None:
    line = {
        "benchmark": "audit",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "versions": {n: _version(n) for n in ("torch", "numpy", "scikit-learn", "cleanlab")},
        **facts,
    }
    LINES.parent.mkdir(parents=True, exist_ok=True)
    with LINES.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def _measure(what: tuple[str, str, str, int], cache: Path, bootstrap: int, again: bool) -> dict[str, Any]:
    return measure(*what, cache, bootstrap, again)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", choices=("digits", "mnist", "cifar10n"))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "dubito-audit")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--bootstrap", type=int, default=30, help="refits for the intervals")
    parser.add_argument("--again", action="store_true", help="only the audit; cleanlab's figures as recorded")
    parser.add_argument("--models", nargs="+", help="only these models")
    parser.add_argument(
        "--missing", action="store_true", help="only cells without a line of the present audit"
    )
    options = parser.parse_args()
    todo = [c for c in cells(options.data, options.cache) if c[3] < options.seeds]
    todo = [c for c in todo if options.models is None or c[2] in options.models]
    if options.missing:
        done = {tuple(m[k] for k in KEYS) for m in newest(LINES) if m.get("code") == code()}
        todo = [c for c in todo if c not in done]
    work = partial(_measure, cache=options.cache, bootstrap=options.bootstrap, again=options.again)
    with ProcessPoolExecutor(options.workers) as pool:
        for facts in pool.map(work, todo):
            record(kind_of_line="cell", **facts)
            name = "/".join(str(facts[k]) for k in KEYS)
            print(name, facts["average_precision"], max(facts["peers"].values()), flush=True)
    total = summary(newest(LINES))
    record(kind_of_line="summary", **total)
    print(json.dumps(total, indent=1))


if __name__ == "__main__":
    main()
