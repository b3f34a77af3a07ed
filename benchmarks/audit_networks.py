"""Out-of-fold probabilities of a convolutional network on CIFAR-10N: a good model for the audit of human errors.

    python benchmarks/audit_networks.py OUT --device cuda --seeds 2
    python benchmarks/audit_networks.py OUT --device cuda --seeds 3 --limit 140    what fits into 140 seconds

A residual network of nine layers (He et al. 2016) is trained on four fifths of the images with the labels that
people gave them (cross-entropy, crops, mirror images) and predicts the last fifth, five times. One npz per set of
labels and seed goes to OUT, where benchmarks/audit.py finds it (--cache). The truth is stored beside, never used in
training.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Array = Any
FOLDS = 5


def block(inside: int, outside: int, pool: bool = False) -> nn.Sequential:
    layers = [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside), nn.ReLU()]
    return nn.Sequential(*layers, nn.MaxPool2d(2)) if pool else nn.Sequential(*layers)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(block(width, width), block(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def network(width: int, classes: int) -> nn.Module:
    w = width
    return nn.Sequential(
        block(3, w),
        block(w, 2 * w, pool=True),
        Residual(2 * w),
        block(2 * w, 4 * w, pool=True),
        block(4 * w, 8 * w, pool=True),
        Residual(8 * w),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(8 * w, classes),
    )


def augmented(x: Tensor, source: torch.Generator) -> Tensor:
    """Mirror half of the images, and shift each by up to four pixels."""
    n = len(x)
    draw = torch.rand(n, 3, generator=source).to(x.device)
    x = torch.where((draw[:, :1, None, None] < 0.5), x.flip(-1), x)
    padded = F.pad(x, (4, 4, 4, 4), mode="reflect")
    ahead = torch.arange(32, device=x.device)
    rows, columns = ((draw[:, i] * 9).long()[:, None] + ahead for i in (1, 2))
    each = torch.arange(n, device=x.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train(
    x: Tensor, y: Tensor, classes: int, *, epochs: int, width: int, seed: int, batch: int = 512
) -> nn.Module:
    source = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = network(width, classes)
    net = net.to(x.device, memory_format=torch.channels_last).train()
    batch = min(batch, len(y))
    steps = epochs * (len(y) // batch)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9, nesterov=True, weight_decay=5e-4)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4, steps, pct_start=0.25, cycle_momentum=False)
    for _ in range(epochs):
        order = torch.randperm(len(y), generator=source).to(x.device)
        for rows in order[: len(y) // batch * batch].split(
            batch
        ):  # one shape, for which kernels are searched once
            with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
                logits = net(augmented(x[rows], source).contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits.float(), y[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            rate.step()
    return net.eval()


@torch.no_grad()
def predict(net: nn.Module, x: Tensor) -> Tensor:
    """Mean of the probabilities of an image and its mirror image."""
    out = []
    for part in x.split(2000):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            both = [net(p.contiguous(memory_format=torch.channels_last)) for p in (part, part.flip(-1))]
        out.append((both[0].float().softmax(1) + both[1].float().softmax(1)) / 2)
    return torch.cat(out)


def out_of_fold(x: Tensor, labels: Array, seed: int, **options: Any) -> Array:
    from sklearn.model_selection import StratifiedKFold

    y = torch.from_numpy(labels).to(x.device)
    classes = int(labels.max()) + 1
    probs = torch.zeros(len(labels), classes, device=x.device)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for kept, left in folds.split(np.zeros(len(labels)), labels):
        inside, outside = (torch.from_numpy(r).to(x.device) for r in (kept, left))
        probs[outside] = predict(train(x[inside], y[inside], classes, seed=seed, **options), x[outside])
    return probs.cpu().numpy()


def main() -> None:
    from dubito import data

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--labels", nargs="+", default=["worst", "aggre", "random1"])
    parser.add_argument(
        "--limit", type=float, default=float("inf"), help="seconds; no set is begun that takes longer"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.benchmark = True
    first, longest = time.perf_counter(), 0.0
    for seed in range(options.seeds):
        for name in options.labels:
            began = time.perf_counter()
            if began - first + longest > options.limit:
                return
            human = data.load("cifar10n", "train", labels=name)
            y, true = (t[: options.rows].numpy() for t in (human.labels, human.clean))
            x = human.inputs[: options.rows].to(options.device).float() / 255
            x = (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)
            probs = out_of_fold(x, y, seed, epochs=options.epochs, width=options.width)
            np.savez(options.out / f"cifar10n_{name}_network_{seed}.npz", labels=y, true=true, probs=probs)
            longest = max(longest, time.perf_counter() - began)
            agrees = (probs.argmax(1) == y).mean()
            print(f"{name} seed {seed}: agrees with {agrees:.4f} of the labels, {longest:.0f} s", flush=True)


if __name__ == "__main__":
    main()
