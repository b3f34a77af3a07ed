"""Learning with inputs from a crowd: LabelMe, annotators who depend on the input, MNIST flippers.

    python benchmarks/crowd_joint.py labelme      the default CrowdClassifier, 5 seeds, and what it is compared with
    python benchmarks/crowd_joint.py inputs       matrices alone against matrices over a heteroscedastic head
    python benchmarks/crowd_joint.py mnist        trace, generalised EM and model-bootstrapped EM, reduced

No clean label is used for anything but the scores that are printed. Each run is one line, appended to
results/labelme/crowd_joint.jsonl or results/benchmarks/crowd_joint.jsonl. The real sets are found through
DUBITO_DATA or in shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito import noise, optim
from dubito.backbones import MLP, build
from dubito.compose import train_method
from dubito.crowd import aggregate
from dubito.data import LabelledData, load
from dubito.data._labelled import Triplets
from dubito.evaluate import evaluate
from dubito.metrics import confusion_error
from dubito.sklearn import CrowdClassifier

HERE = Path(__file__).resolve().parents[1]


def record(place: str, **facts: Any) -> dict[str, Any]:
    """Append one raw line and show it."""
    line = {
        "benchmark": "crowd_joint",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        **facts,
    }
    path = HERE / "results" / place / "crowd_joint.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(facts))
    return line


def data_root() -> Path:
    """The folder of the real sets."""
    named = os.environ.get("DUBITO_DATA", "").split(os.pathsep)[0]
    return Path(named) if named else HERE.parent / "shared" / "data"


def labelme(seeds: int, methods: tuple[str, ...] = ("crossfit-em", "trace", "gem", "ce")) -> Iterator[dict]:
    """Accuracy on the test items, and of the consensus on the training items."""
    train, test = (load("labelme", split, root=data_root()) for split in ("train", "test"))
    X, X_test = (part.inputs.double().numpy() for part in (train, test))
    crowd, gold = train.crowd_labels(), test.clean.numpy()
    consensus = aggregate(crowd)
    right = float((consensus.codes == train.clean).double().mean())
    yield {"kind": "labels only", "method": consensus.method, "consensus": right}
    for method in methods:
        for seed in range(seeds):
            start = time.perf_counter()
            clf = CrowdClassifier(method, random_state=seed).fit(X, crowd)
            seconds = time.perf_counter() - start
            log_p = np.log(clf.predict_proba(X_test)[np.arange(len(gold)), gold])
            yield {
                "kind": "labelme",
                "method": method,
                "seed": seed,
                "test_accuracy": float((clf.predict(X_test) == gold).mean()),
                "test_log_likelihood": float(log_p.mean()),
                "consensus": float((clf.consensus_ == train.clean.numpy()).mean()),
                "seconds": round(seconds, 1),
            }


def input_dependent(
    seed: int, *, size: int = 2000, per_item: int = 1, strength: float = 3.0
) -> tuple[LabelledData, LabelledData]:
    """Gaussian classes and five annotators who err where a direction of their own says so: (train, test)."""
    source = torch.Generator().manual_seed(seed)
    K, R, D = 5, 5, 10
    y = torch.randint(0, K, (2 * size,), generator=source)
    x = 0.7 * torch.randn(K, D, generator=source)[y] + torch.randn(2 * size, D, generator=source)
    P = noise.input_dependent_annotators(x, y, R, K, 0.6, source, strength=strength)

    def part(rows: slice) -> LabelledData:
        crowd = Triplets(*noise.simulate_from(P[rows], source, per_item))
        names = tuple(map(str, range(R)))
        return LabelledData(
            x[rows],
            torch.full((size,), -1),
            clean=y[rows],
            crowd=crowd,
            annotators=names,
            classes=tuple("abcde"),
        )

    return part(slice(0, size)), part(slice(size, None))


def composed(seed: int, method: str, *, epochs: int = 20, **options: Any) -> dict[str, float]:
    """Scores of one method on held-out items of `input_dependent`: of the labels given there, and of the truth."""
    train, test = input_dependent(seed, **options)
    run = train_method(
        method,
        {},
        lambda source: MLP(10, (32,), init="he", generator=source),
        train,
        seed=seed,
        epochs=epochs,
        batch_size=64,
        optimizer=partial(optim.adam, lr=3e-3),
        progress=False,
    )
    return evaluate(run.model, test)


def mnist(
    seed: int, method: str, *, images: int = 6000, epochs: int = 20, skill: float = 0.35
) -> dict[str, float]:
    """Five pairwise flippers with a dominant mean, one label per image: accuracy and error of the matrices."""
    pool = load("mnist", "train", root=data_root() / "images").split(images, seed=seed)[0]
    test = load("mnist", "test", root=data_root() / "images")
    source = torch.Generator().manual_seed(seed)
    A = noise.pairwise_flippers(5, 10, skill, source, dominant=True)
    crowd = Triplets(*noise.simulate(pool.labels, A, source, 1))
    train = LabelledData(
        pool.batch(torch.arange(images)),
        torch.full((images,), -1),
        crowd=crowd,
        annotators=tuple("abcde"),
        classes=tuple("0123456789"),
    )
    run = train_method(
        method,
        {},
        lambda source: build("cnn4", (1, 28, 28), init="glorot", generator=source, pool="each"),
        train,
        seed=seed,
        epochs=epochs,
        batch_size=50,
        optimizer=partial(optim.adam, lr=1e-3),
        progress=False,
    )
    found = getattr(run.procedure, "matrices", None)
    matrices = found if found is not None else run.model.channel.matrices()  # type: ignore[union-attr, operator]
    scored = evaluate(run.model, test.subset(torch.arange(2000)))
    return {
        "test_accuracy": scored["accuracy"],
        "confusion_error": confusion_error(A, matrices.detach()),
    }


INPUT_METHODS = ("trace", "het-trace:integration=mc,samples=100")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("labelme", "inputs", "mnist"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.what == "labelme":
        for line in labelme(arguments.seeds):
            record("labelme", **line)
        return
    methods = INPUT_METHODS if arguments.what == "inputs" else ("trace", "gem", "mbem")
    for seed in range(arguments.seeds):
        for method in methods:
            start = time.perf_counter()
            if arguments.what == "inputs":
                scores = composed(seed, method, epochs=arguments.epochs)
            else:
                scores = mnist(seed, method, images=arguments.images, epochs=arguments.epochs)
            seconds = round(time.perf_counter() - start, 1)
            record(
                "benchmarks", kind=arguments.what, method=method, seed=seed, epochs=arguments.epochs,
                **({"images": arguments.images} if arguments.what == "mnist" else {}), **scores, seconds=seconds,
            )  # fmt: skip


if __name__ == "__main__":
    main()
