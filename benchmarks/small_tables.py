"""What do the defaults reach on small tables with wrong labels, beside logistic regression and a random forest?

    python benchmarks/small_tables.py        every case, 3 seeds; lines to results/benchmarks/small_tables.jsonl
    python benchmarks/small_tables.py wine --seeds 10
    python benchmarks/small_tables.py --only auto --code before     with another commit of dubito on PYTHONPATH

`python tools/auto_page.py` puts their means into docs/commands.md.
Accuracy on true labels of held-out rows (30 %), after training on noisy ones. `nlc` is `NoisyLabelClassifier` as it
comes, `nlc-0` without weight decay (the default before it was chosen by folds), `auto` is `dubito fit` without
``--method``. Lines with the code "before" are of commit fb63259, before these defaults.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from auto import read, record
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito._product.comparing import learn
from dubito._product.reading import scale_of
from dubito._product.training import Setting, budget
from dubito.data import LabelledData
from dubito.evaluate import predict
from dubito.sklearn import NoisyLabelClassifier

Array = np.ndarray[Any, Any]
LINES = Path(__file__).resolve().parents[1] / "results" / "benchmarks" / "small_tables.jsonl"
NOISE = {
    "clean": ("", 0.0),
    "symmetric 0.2": ("any", 0.2),
    "symmetric 0.4": ("any", 0.4),
    "pairwise 0.3": ("next", 0.3),
}


def _made(seed: int) -> tuple[Array, Array]:
    x, y = datasets.make_classification(
        600, 20, n_informative=8, n_classes=3, class_sep=1.2, random_state=seed
    )
    return x, y


def _digits(seed: int) -> tuple[Array, Array]:
    x, y = datasets.load_digits(return_X_y=True)
    some = np.random.default_rng(seed).permutation(len(y))[:900]
    return x[some], y[some]


# Other splits and noise than those that the strengths of the decay were chosen on, 0 to 2.
SEEDS = (10, 11, 12)

SETS: dict[str, Callable[[int], tuple[Array, Array]]] = {
    "iris": lambda _: datasets.load_iris(return_X_y=True),
    "wine": lambda _: datasets.load_wine(return_X_y=True),
    "cancer": lambda _: datasets.load_breast_cancer(return_X_y=True),
    "made": _made,
    "digits": _digits,
    "moons": lambda seed: datasets.make_moons(600, noise=0.15, random_state=seed),
}


def spoiled(y: Array, how: str, rate: float, seed: int) -> Array:
    """Each label turns, with chance `rate`, into any other class or into the next."""
    rng, K = np.random.default_rng(seed + 1), int(y.max()) + 1
    wrong = rng.random(len(y)) < rate
    step = rng.integers(1, K, len(y)) if how == "any" else 1
    return np.where(wrong, (y + step) % K, y)


def logistic(x: Array, y: Array, held: Array, seed: int) -> Array:
    found: Array = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(x, y).predict(held)
    return found


def forest(x: Array, y: Array, held: Array, seed: int) -> Array:
    found: Array = RandomForestClassifier(100, random_state=seed).fit(x, y).predict(held)
    return found


def nlc(x: Array, y: Array, held: Array, seed: int, **options: Any) -> Array:
    return NoisyLabelClassifier(random_state=seed, device="cpu", **options).fit(x, y).predict(held)


def nlc_0(x: Array, y: Array, held: Array, seed: int) -> Array:
    return nlc(x, y, held, seed, weight_decay=0.0)


def auto(x: Array, y: Array, held: Array, seed: int) -> tuple[Array, str]:
    classes = tuple(str(k) for k in range(int(y.max()) + 1))
    train = LabelledData(torch.tensor(x, dtype=torch.float32), torch.from_numpy(y), classes=classes)
    scale = scale_of(train)
    setting = Setting("mlp", (x.shape[1],), len(classes), None, budget(len(x), 64), seed=seed, device="cpu")
    choice, run = learn(setting, "auto", scale.apply(train), table=True, say=lambda _: None)
    test = LabelledData(torch.tensor(held, dtype=torch.float32), torch.zeros(len(held), dtype=torch.int64))
    log_p = predict(run.model.cpu(), scale.apply(test)).log_p
    return log_p.argmax(-1).numpy(), choice.method + (" (linear)" if choice.network else "")


METHODS: dict[str, Callable[..., Any]] = {
    "logistic": logistic,
    "forest": forest,
    "nlc-0": nlc_0,
    "nlc": nlc,
    "auto": auto,
}


def run(data: str, noise: str, seed: int, names: list[str]) -> dict[str, Any]:
    """One table under one noise: accuracy and processor seconds of each method."""
    x, y = SETS[data](seed)
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, random_state=seed, stratify=y)
    noisy = spoiled(y, *NOISE[noise], seed)[train]
    found: dict[str, Any] = {"data": data, "noise": noise, "seed": seed}
    for name in names:
        began = time.process_time()
        said = METHODS[name](x[train], noisy, x[test], seed)
        if isinstance(said, tuple):
            said, found["chosen"] = said
        found[name] = round(float((said == y[test]).mean()), 4)
        found[f"{name}_seconds"] = round(time.process_time() - began, 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", help="names of tables; all without")
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--code", default="now")
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    torch.set_num_threads(1)
    done = {(line["code"], line["data"], line["noise"], line["seed"]) for line in read(args.lines)}
    for seed in args.seeds:
        for data in args.data or SETS:
            for noise in NOISE:
                if (args.code, data, noise, seed) not in done:
                    line = {"code": args.code, **run(data, noise, seed, args.only)}
                    record(line, args.lines)
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
