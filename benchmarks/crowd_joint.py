"""Learning with inputs from a crowd: LabelMe, annotators who depend on the input, MNIST flippers.

    python benchmarks/crowd_joint.py labelme      the default CrowdClassifier, 5 seeds, and what it is compared with
    python benchmarks/crowd_joint.py inputs       matrices alone against matrices over a heteroscedastic head
    python benchmarks/crowd_joint.py mnist        trace, generalised EM and model-bootstrapped EM, reduced
    python benchmarks/crowd_joint.py step         time of a step with 10 and with 10,000 annotators

No clean label is used for anything but the scores that are printed. Each run is one line, appended to
results/labelme/crowd_joint.jsonl or results/benchmarks/crowd_joint.jsonl ($OUT where set). The real sets are found
through DUBITO_DATA or in shared/data beside the repository.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dubito import heads, noise, optim, penalties
from dubito._batches import Batches
from dubito.backbones import MLP, build
from dubito.channels import AnnotatorConfusion
from dubito.compose import train_method
from dubito.crowd import aggregate
from dubito.data import LabelledData, load
from dubito.data._labelled import Triplets
from dubito.evaluate import evaluate
from dubito.metrics import confusion_error
from dubito.model import Model
from dubito.procedures import Plain, SparseAnnotators
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
    path = Path(os.environ.get("OUT", HERE / "results" / place)) / "crowd_joint.jsonl"
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
    seed: int,
    *,
    size: int = 3000,
    per_item: int = 1,
    strength: float = 4.0,
    people: int = 2,
    skill: float = 0.6,
    gap: float = 0.7,
) -> tuple[LabelledData, LabelledData]:
    """Gaussian classes and annotators who err where a direction of their own says so: (train, test)."""
    source = torch.Generator().manual_seed(seed)
    K, R, D = 5, people, 10
    y = torch.randint(0, K, (2 * size,), generator=source)
    x = gap * torch.randn(K, D, generator=source)[y] + torch.randn(2 * size, D, generator=source)
    P = noise.input_dependent_annotators(x, y, R, K, skill, source, strength=strength)

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


def composed(seed: int, method: str, *, epochs: int = 10, **options: Any) -> dict[str, float]:
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


def _network(name: str, source: torch.Generator) -> torch.nn.Module:
    """The paper's network, or a perceptron that a processor can train."""
    if name == "cnn4":
        return build("cnn4", (1, 28, 28), init="glorot", generator=source, pool="each")
    return MLP(784, (128,), init="he", generator=source)


def mnist(
    seed: int,
    method: str,
    *,
    network: str = "mlp",
    images: int = 10_000,
    epochs: int = 15,
    skill: float = 0.35,
    batch_size: int = 100,
    lr: float = 0.01,
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
        partial(_network, network),
        train,
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
        optimizer=partial(optim.adam, lr=lr),
        progress=False,
    )
    found = getattr(run.procedure, "matrices", None)
    matrices = found if found is not None else run.model.channel.matrices()  # type: ignore[union-attr, operator]
    scored = evaluate(run.model, test.subset(torch.arange(2000)))
    return {
        "test_accuracy": scored["accuracy"],
        "confusion_error": confusion_error(A, matrices.detach()),
    }


def step_times(rounds: int = 7, steps: int = 30) -> dict[str, float]:
    """CPU milliseconds per step of joint training, 128 items with 3 labels each, 10 classes, in turn; medians."""
    source = torch.Generator().manual_seed(0)
    n, K = 128 * steps, 10
    x, y = torch.randn(n, 256, generator=source), torch.randint(0, K, (n,), generator=source)

    def prepared(people: int, sparse: bool) -> Callable[[], float]:
        who = torch.randint(0, people, (3 * n,), generator=source)
        crowd = Triplets(torch.arange(n).repeat_interleave(3), who, y.repeat_interleave(3))
        names = tuple(map(str, range(people)))
        data = LabelledData(x, torch.full((n,), -1), crowd=crowd, annotators=names)
        channel = AnnotatorConfusion(people, K, sparse=sparse)
        model = Model(MLP(256, (256,), init="he"), heads.Point(256, K), channel=channel)
        kind = SparseAnnotators if sparse else Plain
        procedure = kind(model, penalty=partial(penalties.trace, weight=0.01))
        procedure.begin(data)
        optimizer = (optim.row_adam if sparse else optim.adam)(procedure.named_parameters())
        batches = Batches(data)

        def run() -> float:
            start = time.process_time()
            for step in range(steps):
                optimizer.zero_grad()
                batch = batches(torch.arange(128 * step, 128 * step + 128))
                procedure(batch, lambda _: torch.Generator()).backward()
                optimizer.step()
            return 1000 * (time.process_time() - start) / steps

        run()
        return run

    runs = {"10 dense": prepared(10, False), "10": prepared(10, True), "10000": prepared(10_000, True)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(run())
    found = {f"ms_with_{name}": float(np.median(t)) for name, t in times.items()}
    ratio = {
        f"ratio_to_{name}": found["ms_with_10000"] / found[f"ms_with_{name}"] for name in ("10", "10 dense")
    }
    return {**found, "ratio": ratio["ratio_to_10"], **ratio}


INPUT_METHODS = ("trace", "het-trace:integration=mc,samples=50")
MNIST_METHODS = ("trace", "gem:rounds=3", "mbem:rounds=3")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("labelme", "inputs", "mnist", "step"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed of inputs and mnist")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--network", choices=("mlp", "cnn4"), default="mlp", help="cnn4 is the paper's")
    parser.add_argument("--epochs", type=int, default=None, help="10 for inputs, 15 for mnist")
    parser.add_argument("--batch", type=int, default=100, help="of mnist; 50 in the paper")
    parser.add_argument("--lr", type=float, default=0.01, help="of mnist; .001 in the paper, for 200 epochs")
    arguments = parser.parse_args()
    if arguments.what == "labelme":
        for line in labelme(arguments.seeds):
            record("labelme", **line)
        return
    if arguments.what == "step":
        record("benchmarks", kind="step", **step_times())
        return
    epochs = arguments.epochs or (10 if arguments.what == "inputs" else 15)
    methods = INPUT_METHODS if arguments.what == "inputs" else MNIST_METHODS
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for method in methods:
            start = time.perf_counter()
            if arguments.what == "inputs":
                scores = composed(seed, method, epochs=epochs)
            else:
                sizes = {"images": arguments.images, "batch_size": arguments.batch, "lr": arguments.lr}
                scores = mnist(seed, method, network=arguments.network, epochs=epochs, **sizes)
            seconds = round(time.perf_counter() - start, 1)
            facts: dict[str, Any] = {"kind": arguments.what, "method": method, "seed": seed}
            if arguments.what == "mnist":
                facts |= {"images": arguments.images, "network": arguments.network}
                facts |= {"batch": arguments.batch, "lr": arguments.lr}
            record("benchmarks", **facts, epochs=epochs, **scores, seconds=seconds)


if __name__ == "__main__":
    main()
