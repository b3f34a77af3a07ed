"""How far backward correction by alpha drives the logits, in float32 and float64: its loss has no floor.

    python benchmarks/backward_growth.py --root DATA

A residual network of eight layers on the first 5,000 images of CIFAR-10, a fifth of their labels moved to another
class; batches of 128, SGD with the paper's rate .1, Nesterov momentum .9 and decay 1e-4. After every 50 steps the
largest logit of the batch is noted, until it is not a number or the steps are over. One line for each alpha and
type is appended to results/benchmarks/backward_growth.jsonl.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dubito import data, noise, targets
from dubito.backbones import ResNetCIFAR
from dubito.papers.results import provenance

HERE = Path(__file__).resolve().parents[1]
IMAGES, BATCH, RATE, CLASSES, EVERY = 5_000, 128, 0.2, 10, 50


def growth(root: str | None, alpha: float, dtype: torch.dtype, steps: int) -> list[float]:
    """The largest logit after every 50 steps; ends early with the first that is not finite."""
    train = data.load("cifar10", "train", root=root)
    rows, g = torch.arange(IMAGES), torch.Generator().manual_seed(0)
    x, true = train.batch(rows).to(dtype), train.labels[rows]
    y = noise.corrupt(true, noise.flip_to_other(CLASSES, RATE), generator=g)
    weights = targets.smear(y, targets.backward_matrix(noise.resample(CLASSES, alpha))).to(dtype)
    network = ResNetCIFAR(depth=8, generator=g).to(dtype)
    head = nn.utils.skip_init(nn.Linear, network.out_features, CLASSES, dtype=dtype)
    nn.init.xavier_uniform_(head.weight, generator=g)
    nn.init.zeros_(head.bias)
    model = nn.Sequential(network, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    found: list[float] = []
    for step in range(1, steps + 1):
        batch = torch.randint(0, IMAGES, (BATCH,), generator=g)
        logits = model(x[batch])
        loss = -(weights[batch] * logits.log_softmax(-1)).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            found.append(float(logits.detach().abs().max()))
            if not found[-1] < float("inf"):
                break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", help="folder of data; else DUBITO_DATA")
    parser.add_argument("--alphas", default="0.1,0.2,0.5,0.7,0.9")
    parser.add_argument("--types", default="float32,float64")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "benchmarks" / "backward_growth.jsonl")
    options = parser.parse_args()
    for name in options.types.split(","):
        for alpha in map(float, options.alphas.split(",")):
            largest = growth(options.root, alpha, getattr(torch, name), options.steps)
            commit, dirty = provenance()
            line: dict[str, Any] = {
                "benchmark": "backward_growth", "alpha": alpha, "dtype": name, "every": EVERY,
                "largest_logit": [v if v < float("inf") else None for v in largest], "steps": options.steps,
                "hardware": "CPU", "commit": commit, "dirty": dirty,
            }  # fmt: skip
            print(json.dumps(line), flush=True)
            with options.out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
