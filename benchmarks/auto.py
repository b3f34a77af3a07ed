"""Does `--method auto` beat plain cross-entropy on noisy labels, and keep up with it on clean ones?

    python benchmarks/auto.py                      every case, 5 seeds; lines to results/benchmarks/auto.jsonl
    python benchmarks/auto.py digits table --seeds 2 --workers 2
    python benchmarks/auto.py --summary            means and intervals from the lines

Auto sees noisy training labels only; both networks have the same budget, start and data, and are scored on clean
labels of held-out items. A summary line has the mean difference of the seeds with its 95 % interval (Student's t).
MNIST and LabelMe are found through DUBITO_DATA or in shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito import noise
from dubito._product.comparing import learn
from dubito._product.reading import scale_of, shape_of
from dubito._product.training import Setting, budget
from dubito.data import LabelledData, Triplets, load, with_noise
from dubito.evaluate import evaluate
from dubito.noise import simulate

HERE = Path(__file__).resolve().parents[1]
LINES = HERE / "results" / "benchmarks" / "auto.jsonl"
Pair = tuple[LabelledData, LabelledData]


def digits(seed: int) -> Pair:
    from sklearn.datasets import load_digits

    return _split(*load_digits(return_X_y=True), seed)


def cancer(seed: int) -> Pair:
    from sklearn.datasets import load_breast_cancer

    return _split(*load_breast_cancer(return_X_y=True), seed)


def table(seed: int) -> Pair:
    from sklearn.datasets import make_classification

    x, y = make_classification(
        3000, 20, n_informative=10, n_redundant=4, n_classes=4, class_sep=1.5, random_state=seed
    )
    return _split(x, y, seed)


def mnist(seed: int) -> Pair:
    train, test = load("mnist", "train"), load("mnist", "test")
    (part,) = train.split(2000, seed=seed)
    (held,) = test.split(5000, seed=seed)
    return _with_truth(part), _with_truth(held)


def labelme(seed: int) -> Pair:
    train, test = load("labelme", "train"), load("labelme", "test")
    classes = tuple(str(k) for k in range(8))
    return replace(train, classes=classes), replace(test, classes=classes)


def _with_truth(data: LabelledData) -> LabelledData:
    return replace(data, clean=data.labels)


def _split(x: Any, y: Any, seed: int) -> Pair:
    K = int(y.max()) + 1
    data = LabelledData(
        torch.tensor(x, dtype=torch.float32),
        torch.tensor(y, dtype=torch.int64),
        classes=tuple(str(k) for k in range(K)),
    )
    n = round(0.7 * len(data))
    train, test = _with_truth(data).split(n, len(data) - n, seed=seed, purpose="benchmark")
    return train, test


def as_it_is(data: LabelledData, seed: int) -> LabelledData:
    return data


def symmetric(data: LabelledData, seed: int) -> LabelledData:
    return with_noise(data, noise.flip_to_other(data.num_classes, 0.3), seed)


def mild(data: LabelledData, seed: int) -> LabelledData:
    return with_noise(data, noise.flip_to_other(data.num_classes, 0.15), seed)


def pairwise(data: LabelledData, seed: int) -> LabelledData:
    K = data.num_classes
    eye = torch.eye(K, dtype=torch.float64)
    return with_noise(data, 0.7 * eye + 0.3 * eye.roll(1, 1), seed)


def crowd(data: LabelledData, seed: int, per_item: int = 3) -> LabelledData:
    """Five annotators from nearly always right to nearly guessing."""
    K = data.num_classes
    skill = torch.tensor([0.95, 0.8, 0.6, 0.4, 0.25], dtype=torch.float64).view(5, 1, 1)
    A = skill * torch.eye(K, dtype=torch.float64) + (1 - skill) / K
    triplets = simulate(data.labels, A, torch.Generator().manual_seed(seed), per_item)
    return replace(
        data,
        labels=torch.full_like(data.labels, -1),
        crowd=Triplets(*triplets),
        annotators=tuple("abcde"),
    )


CASES: dict[str, tuple[Callable[[int], Pair], Callable[[LabelledData, int], LabelledData]]] = {
    "digits clean": (digits, as_it_is),
    "digits mild 0.15": (digits, mild),
    "digits symmetric 0.3": (digits, symmetric),
    "digits pairwise 0.3": (digits, pairwise),
    "table clean": (table, as_it_is),
    "table symmetric 0.3": (table, symmetric),
    "table pairwise 0.3": (table, pairwise),
    "cancer clean": (cancer, as_it_is),
    "cancer symmetric 0.3": (cancer, symmetric),
    "mnist clean": (mnist, as_it_is),
    "mnist symmetric 0.3": (mnist, symmetric),
    "mnist pairwise 0.3": (mnist, pairwise),
    "digits crowd": (digits, crowd),
    "labelme crowd": (labelme, as_it_is),
}


def run(case: str, seed: int, epochs: int | None) -> dict[str, Any]:
    """One case with one seed: clean accuracy of auto and of cross-entropy on held-out items."""
    torch.set_num_threads(1)
    make, spoil = CASES[case]
    train, test = make(seed)
    train = spoil(train, seed)
    scale = scale_of(train)
    train, test = scale.apply(train), scale.apply(replace(test, crowd=None))
    network = "mlp"  # for pictures as well: small, and quick to learn wrong labels by heart
    setting = Setting(
        network,
        shape_of(train),
        train.num_classes,
        len(train.annotators) or (int(train.crowd.annotator.max()) + 1 if train.crowd else None),
        epochs or budget(len(train), 64),
        seed=seed,
        device="cpu",
    )
    found: dict[str, Any] = {"case": case, "seed": seed, "epochs": setting.epochs, "network": network}
    for method in ("ce", "auto"):
        began = time.perf_counter()
        choice, made = learn(setting, method, train, table=True, say=lambda _: None)
        found[method] = evaluate(made.model, test)["clean_accuracy"]
        found[f"{method}_seconds"] = round(time.perf_counter() - began, 1)
    return {
        **found,
        "chosen": choice.method + (" (linear)" if choice.network else ""),
        "difference": found["auto"] - found["ce"],
        "race": _race(choice),
    }


def _race(choice: Any) -> list[list[Any]]:
    return [[e.method, e.folds, round(e.accuracy, 4)] for e in choice.race]


def record(line: dict[str, Any], path: Path) -> None:
    """Append one raw line."""
    whole = {
        "benchmark": path.stem,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpus": os.cpu_count(),
        **line,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(whole) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """The lines so far; a case that has a line for a seed is not run again."""
    return (
        [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


def summary(path: Path) -> None:
    """Mean difference per case with its interval, from the latest line of each seed."""
    from scipy.stats import t

    cells: dict[str, dict[int, dict[str, Any]]] = {}
    for line in read(path):
        cells.setdefault(line["case"], {})[line["seed"]] = line
    print(f"{'case':<24}{'seeds':>6}{'ce':>8}{'auto':>8}{'difference':>12}   95 % interval     chosen")
    for case in [c for c in CASES if c in cells]:
        lines = list(cells[case].values())
        d = np.array([line["difference"] for line in lines])
        error = d.std(ddof=1) / len(d) ** 0.5 * t.ppf(0.975, len(d) - 1) if len(d) > 1 else float("nan")
        means = [np.mean([line[m] for line in lines]) for m in ("ce", "auto")]
        chosen = ", ".join(sorted({line["chosen"].partition(":")[0] for line in lines}))
        print(
            f"{case:<24}{len(d):>6}{means[0]:>8.3f}{means[1]:>8.3f}{d.mean():>+12.4f}"
            f"   {d.mean() - error:+.4f} to {d.mean() + error:+.4f}   {chosen}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="cases that begin with one of these words; all without")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--summary", action="store_true")
    args = parser.parse_args()
    if not args.summary:
        done = {(line["case"], line["seed"]) for line in read(args.lines)}
        names = [c for c in CASES if not args.cases or any(c.startswith(w) for w in args.cases)]
        with ProcessPoolExecutor(args.workers) as pool:
            jobs = [
                pool.submit(run, case, seed, args.epochs)
                for seed in range(args.seeds)
                for case in names
                if (case, seed) not in done
            ]
            for job in as_completed(jobs):
                if job.exception() is not None:  # a case without its data must not stop the others
                    print(f"failed: {job.exception()}", flush=True)
                    continue
                line = job.result()
                record(line, args.lines)
                print(json.dumps(line), flush=True)
    summary(args.lines)


if __name__ == "__main__":
    main()
