"""The loop: time beside a loop written by hand, skorch and Lightning, as ratios in one run.

    python benchmarks/loop.py hand          our loop / the same work written by hand (target: below 1.05)
    python benchmarks/loop.py peers         skorch / ours and Lightning / ours on small models

Every contestant trains the same network on the same tensors with the same optimiser for the same number of
epochs, shuffled every epoch, with batches gathered from memory. Our time is that of the whole call: checks of
data and model, the loss of every epoch and the watch over gradients are in it. The loop by hand does nothing of
that and keeps no loss; it has torch's default Adam and, as a second contestant, the fused one that `optim.adam`
uses. Contestants take turns on networks copied beforehand, the first turn is not counted, and medians over the
turns are compared: as times, and as ratios within each turn with the 95 % interval of their median. Each
measurement is appended to results/benchmarks/loop.jsonl ($OUT/loop.jsonl where that is set). Peers are installed
beside us (skorch, lightning).
"""

from __future__ import annotations

import argparse
import copy
import datetime
import gc
import json
import logging
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubito import heads, optim
from dubito.backbones import build
from dubito.data import LabelledData
from dubito.model import Model
from dubito.train import fit
from dubito.verify.covered import digests

HERE = Path(__file__).resolve().parents[1]
LR, EPS = 1e-3, 1e-7

# name: (backbone, shape of an example, examples, batch, epochs)
NETWORKS: dict[str, tuple[str, tuple[int, ...], int, int, int]] = {
    "mlp-64": ("mlp", (20,), 4096, 64, 10),
    "mlp-512": ("mlp", (100,), 4096, 128, 4),
    "lenet5": ("lenet5", (1, 28, 28), 2048, 128, 2),
}
WIDTHS = {"mlp-64": 64, "mlp-512": 512}


def problem(name: str) -> tuple[Model, Tensor, Tensor]:
    backbone, shape, n, _, _ = NETWORKS[name]
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, *shape, generator=g)
    y = torch.randint(0, 10, (n,), generator=g)
    if backbone == "mlp":
        width = WIDTHS[name]
        body: nn.Module = nn.Sequential(
            nn.Linear(shape[0], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        with torch.no_grad():
            for p in body.parameters():
                p.copy_(torch.randn(p.shape, generator=g) / math.sqrt(p.shape[-1]))
        return Model(body, heads.Point(width, 10)), x, y
    net = build(backbone, shape)
    return Model(net, heads.Point(int(net.out_features), 10)), x, y  # type: ignore[arg-type]


class Plain(nn.Module):
    """The same layers as the model, giving logits."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.body, self.out = model.backbone, model.head.mean

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.out(self.body(x))
        return logits


def ours(model: Model, x: Tensor, y: Tensor, batch: int, epochs: int) -> nn.Module:
    data = LabelledData(x, y)
    optimizer = optim.adam
    return fit(
        model, data, optimizer=optimizer, epochs=epochs, batch_size=batch, device="cpu", progress=False
    ).model


def by_hand(
    model: Model, x: Tensor, y: Tensor, batch: int, epochs: int, fused: bool | None = None
) -> nn.Module:
    net = Plain(model)
    opt = torch.optim.Adam(net.parameters(), lr=LR, eps=EPS, fused=fused)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            opt.zero_grad()
            loss = F.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            opt.step()
    return net


def with_skorch(model: Model, x: Tensor, y: Tensor, batch: int, epochs: int) -> object:
    from skorch import NeuralNetClassifier

    net = NeuralNetClassifier(
        Plain(model),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=LR,
        optimizer__eps=EPS,
        max_epochs=epochs,
        batch_size=batch,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
    )
    return net.fit(x.numpy(), y.numpy())


def with_lightning(model: Model, x: Tensor, y: Tensor, batch: int, epochs: int) -> object:
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.net = Plain(model)

        def training_step(self, batch: Any, index: int) -> Tensor:
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.net.parameters(), lr=LR, eps=EPS)

    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=True))
    return trainer


Contestant = Callable[[Model, Tensor, Tensor, int, int], object]


def turns(
    name: str, contestants: dict[str, Contestant], rounds: int, seconds: float
) -> dict[str, dict[str, list[float]]]:
    """Wall and CPU seconds of every contestant, turn by turn; the first turn warms up and is not counted."""
    until = time.monotonic() + seconds
    model, x, y = problem(name)
    _, _, _, batch, epochs = NETWORKS[name]
    found: dict[str, dict[str, list[float]]] = {who: {"wall": [], "cpu": []} for who in contestants}
    for turn in range(rounds + 1):
        if turn > 5 and time.monotonic() > until:
            break
        order = list(contestants) if turn % 2 else list(contestants)[::-1]
        for who in order:
            start = copy.deepcopy(model)
            gc.collect()  # nobody pays for what another has left behind
            wall, cpu = time.perf_counter(), time.process_time()
            contestants[who](start, x, y, batch, epochs)
            if turn:
                found[who]["wall"].append(time.perf_counter() - wall)
                found[who]["cpu"].append(time.process_time() - cpu)
    return found


def record(kind: str, name: str, found: dict[str, dict[str, list[float]]], base: str) -> None:
    """Append one raw line and show the ratios of medians, in wall and in CPU time."""
    others = {who: times for who, times in found.items() if who != "ours"}
    medians = {who: {k: statistics.median(v) for k, v in times.items()} for who, times in found.items()}
    steps = -(-NETWORKS[name][2] // NETWORKS[name][3]) * NETWORKS[name][4]
    line = {
        "benchmark": "loop",
        "kind": kind,
        "network": name,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {n: _version(n) for n in ("dubito", "torch", "skorch", "lightning")},
        "parts": digests(),
        "rounds": len(found[base]["wall"]),
        "steps": steps,
        "seconds": {who: {k: round(v, 5) for k, v in m.items()} for who, m in medians.items()},
        "ratio_to": base,
        "ratio": {who: round(m["wall"] / medians[base]["wall"], 4) for who, m in medians.items()},
        "cpu_ratio": {who: round(m["cpu"] / medians[base]["cpu"], 4) for who, m in medians.items()},
        "ours_in_turn": {who: _in_turn(found["ours"], times) for who, times in others.items()},
        "interval": {who: _intervals(found["ours"], times) for who, times in others.items()},
    }
    path = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "loop.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    micro = {who: f"{m['cpu'] / steps * 1e6:.0f} us" for who, m in medians.items()}
    print(f"{kind} {name}: wall {line['ratio']}, CPU {line['cpu_ratio']} of {base}; CPU per step {micro}")
    print(f"  ours beside each, turn by turn: {line['ours_in_turn']}, 95 % interval {line['interval']}")


def _in_turn(ours: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, float]:
    """The median over turns of our time beside that of another in the same turn, in wall and in CPU time."""
    return {
        kind: round(statistics.median(a / b for a, b in zip(ours[kind], other[kind])), 4) for kind in ours
    }


def _intervals(ours: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, list[float]]:
    """The 95 % interval of that median: the ratios between which it lies, whatever their distribution."""
    n = len(ours["wall"])
    # The median is below the k-th smallest of n ratios as often as n coins show fewer than k heads.
    below = [sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(n // 2 + 1)]
    k = max(1, max(i for i, share in enumerate(below) if share <= 0.025))
    ratios = {kind: sorted(a / b for a, b in zip(ours[kind], other[kind])) for kind in ours}
    return {kind: [round(found[k - 1], 4), round(found[n - k], 4)] for kind, found in ratios.items()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("hand", "peers"))
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--seconds", type=float, default=600, help="no new turn of a network after so long")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.getLogger("lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    for name in options.networks:
        if options.kind == "hand":
            contestants: dict[str, Contestant] = {
                "ours": ours,
                "by hand": by_hand,
                "by hand, fused": partial(by_hand, fused=True),
            }
            base = "by hand"
        else:
            contestants = {"ours": ours, "skorch": with_skorch, "lightning": with_lightning}
            base = "ours"
        record(options.kind, name, turns(name, contestants, options.rounds, options.seconds), base)


if __name__ == "__main__":
    main()
