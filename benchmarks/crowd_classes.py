"""Hundreds of classes, tens of labels per annotator: pooled and low-rank matrices against full ones.

    python benchmarks/crowd_classes.py --seeds 3 --processes 4

200 classes, 300 annotators with 30 labels each, one label per item; every class is taken for two others. Scores are
those of held-out items: of the labels given there, and of the truth. Lines go to
results/benchmarks/crowd_classes.jsonl ($OUT where set).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from functools import partial
from itertools import product
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito import optim
from dubito.backbones import MLP
from dubito.compose import train_method
from dubito.data import LabelledData
from dubito.data._labelled import Triplets
from dubito.evaluate import evaluate

HERE = Path(__file__).resolve().parents[1]
OUT = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "crowd_classes.jsonl"
METHODS = (
    "trace:matrices=pooled,trace=0.0",
    "trace:matrices=pooled,rank=32,trace=0.0",
    "trace:sparse=true,trace=0.0",
    "ce",
)
FEATURES = 64


def drawn(seed: int, K: int, people: int, each: int) -> tuple[LabelledData, LabelledData]:
    """Gaussian classes, annotators of skill Beta(5, 3): (train, test)."""
    source = torch.Generator().manual_seed(seed)
    n = people * each
    y = torch.randint(0, K, (2 * n,), generator=source)
    x = torch.randn(K, FEATURES, generator=source)[y] + torch.randn(2 * n, FEATURES, generator=source)
    who = torch.arange(people).repeat_interleave(each).repeat(2)
    skill = torch.from_numpy(np.random.default_rng(seed).beta(5, 3, size=people))
    lures = torch.stack([torch.randperm(K, generator=source) for _ in range(2)], 1)
    wrong = lures[y].gather(1, torch.randint(0, 2, (2 * n, 1), generator=source)).squeeze(1)
    given = torch.where(torch.rand(2 * n, generator=source) < skill[who], y, wrong)

    def part(rows: slice) -> LabelledData:
        crowd = Triplets(torch.arange(n), who[rows], given[rows])
        names, classes = (tuple(map(str, range(count))) for count in (people, K))
        return LabelledData(x[rows], given[rows], y[rows], classes, crowd=crowd, annotators=names)

    return part(slice(0, n)), part(slice(n, None))


def _network(source: torch.Generator) -> torch.nn.Module:
    return MLP(FEATURES, (256,), init="he", generator=source)


def one(sizes: dict[str, int], epochs: int, job: tuple[int, str]) -> dict[str, Any]:
    """Train one method on one crowd."""
    torch.set_num_threads(1)
    seed, method = job
    train, test = drawn(seed, **sizes)
    begin = time.perf_counter()
    run = train_method(
        method,
        {},
        _network,
        train,
        seed=seed,
        epochs=epochs,
        batch_size=100,
        optimizer=partial(optim.row_adam, lr=1e-3),
        progress=False,
    )
    seconds = round(time.perf_counter() - begin, 1)
    return {
        **sizes,
        "epochs": epochs,
        "seed": seed,
        "method": method,
        **evaluate(run.model, test),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--people", type=int, default=300)
    parser.add_argument("--each", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    sizes = {"K": options.classes, "people": options.people, "each": options.each}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with Pool(options.processes) as pool, OUT.open("a", encoding="utf-8") as file:
        jobs = list(product(range(options.seeds), METHODS))
        for line in pool.imap_unordered(partial(one, sizes, options.epochs), jobs):
            file.write(json.dumps({"benchmark": "crowd_classes", **line}) + "\n")
            file.flush()
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
