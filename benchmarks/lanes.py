"""Several runs on the streams of one GPU against one run alone: training steps per second of all together.

    python benchmarks/lanes.py                             WRN-28-2, batch 128, 1, 4, 8 and 12 lanes (target: 1.7x)
    python benchmarks/lanes.py --network resnet32
    python benchmarks/lanes.py --ways fused,heuristic --counts 1,8
    python benchmarks/lanes.py --network cnn9 --ways fused,heuristic --counts 1,3,6 --steps 100 --rounds 3

Every lane trains on its own noisy copy of random images, with augmentation, momentum and a schedule, or CNN9 with
Adam alone, as the runs of a paper do. Three ways are measured, each in a process of its own: kernels of ours
(`dubito._fused`, what lanes use where they can), and compiled, with cuDNN's algorithms searched (the fastest of a
device to itself) or named by its heuristics (`lanes.settings` takes these for several lanes). CNN9 has cuDNN's
convolutions either way, and so a fourth, `fused-searched`. Counts of lanes are measured in turn, several rounds of
each, and the median is taken. What several lanes make is divided by one run alone of the same way (what streams
bring), and by the fastest of the runs alone (what a user gains). One line is
appended to results/benchmarks/lanes.jsonl ($OUT/lanes.jsonl where that is set).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

from dubito import lanes as lanes_module
from dubito import optim
from dubito._random import generator
from dubito.backbones import build
from dubito.data import LabelledData
from dubito.data.augment import augment
from dubito.lanes import Lane
from dubito.methods import parse
from dubito.model import Model
from dubito.papers.results import provenance

HERE = Path(__file__).resolve().parents[1]
EPOCHS, MILESTONES = 1_000, (160_000, 240_000)
MOMENTUM = {
    "optimizer": partial(optim.sgd, lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),
    "schedule": partial(optim.milestones, at=MILESTONES, factor=0.1),
}
NINE = {"padded": True, "norm_eps": 1e-3, "dropout_of": "element", "norm_last": True}


def lane(seed: int, network: str, images: int, batch: int, device: str) -> Iterator[None]:
    """An endless run of cross-entropy."""
    draw = partial(torch.randint, generator=torch.Generator(device).manual_seed(seed), device=device)
    data = LabelledData(draw(0, 256, (images, 3, 32, 32), dtype=torch.uint8), draw(0, 10, (images,)))
    method, params = parse("ce")
    stages = method.build(**params)
    nine = network == "cnn9"
    backbone = build(network, (3, 32, 32), generator=generator(seed, 0, "backbone"), **(NINE if nine else {}))
    head = stages.head(backbone.out_features, 10, generator=generator(seed, 0, "head"))
    move = None if nine else partial(augment, pad=4)
    made = Lane(Model(backbone, head), stages, data, seed=seed, device=device, augment=move)
    recipe = {"optimizer": partial(optim.adam, lr=1e-3)} if nine else MOMENTUM
    return made.steps(epochs=EPOCHS, batch_size=batch, **recipe)


def rate(lanes: Sequence[Iterator[None]], steps: int, wait: Callable[[], None]) -> float:
    """Steps per second of all lanes together, each of which makes `steps`."""
    wait()
    begun = time.perf_counter()
    for _ in range(steps):
        for each in lanes:
            next(each)
    wait()
    return steps * len(lanes) / (time.perf_counter() - begun)


def measured(options: argparse.Namespace, way: str) -> dict[int, list[float]]:
    """Rates of each count of lanes, round by round, in a process that computes in one way."""
    if "fused" not in way:
        lanes_module.suits = lambda network, batch: False  # type: ignore[assignment]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = "searched" in way
    counts = [int(c) for c in options.counts.split(",")]
    lanes = [lane(s, options.network, options.images, options.batch, device) for s in range(max(counts))]
    rate(lanes, 8, wait)  # compiles and captures
    found: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(options.rounds):
        for count in counts:
            found[count].append(rate(lanes[:count], options.steps, wait))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="wrn-28-2")
    parser.add_argument("--counts", default="1,4,8,12", help="how many lanes, with commas; one of them 1")
    parser.add_argument("--steps", type=int, default=200, help="of each lane in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--ways", default="fused,searched,heuristic")
    options = parser.parse_args()
    found = {}
    for name in options.ways.split(","):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found[name] = pool.apply(measured, (options, name))
        print(name, {c: round(statistics.median(r), 1) for c, r in found[name].items()}, flush=True)
    middle = {n: {c: statistics.median(r) for c, r in rates.items()} for n, rates in found.items()}
    alone = max(rates[1] for rates in middle.values())
    commit, dirty = provenance()
    line = {
        "benchmark": "lanes", "network": options.network, "batch": options.batch,
        "steps_per_second": {n: {str(c): round(r, 1) for c, r in rates.items()} for n, rates in middle.items()},
        "over_alone": {
            n: {str(c): round(r / rates[1], 3) for c, r in rates.items()} for n, rates in middle.items()
        },
        "over_faster_alone": {
            n: {str(c): round(r / alone, 3) for c, r in rates.items()} for n, rates in middle.items()
        },
        "rounds": {n: {str(c): [round(x, 1) for x in r] for c, r in rates.items()} for n, rates in found.items()},
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "commit": commit, "dirty": dirty,
    }  # fmt: skip
    print(json.dumps(line))
    out = Path(os.environ.get("OUT", HERE / "results" / "benchmarks"))
    with (out / "lanes.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
