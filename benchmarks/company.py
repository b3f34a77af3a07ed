"""Whether a lane beside others makes the steps that it makes alone, and draws dropout of its own.

    python benchmarks/company.py --root DATA --out lines.jsonl

Plain training of two papers on CIFAR-10 (Collier's nine layers without dropout, Englesson's WRN-28-2), alone twice
and beside three other lanes twice: the distance between the weights after some steps, beside how far they have
moved. Then captured dropout on four streams: how many of its masks differ, what share they keep, and whether the
gradient sees the mask of its own step. One line each.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dubito._lanes.replay import captured
from dubito.lanes import settings
from dubito.papers import collier2020, englesson2023
from dubito.papers.configs import Config
from dubito.papers.lane_run import LaneRun
from dubito.papers.results import provenance

REPLAYS, LANES, RATE = 600, 4, 0.25


def weights(run: LaneRun) -> Tensor:
    """All parameters in a row, once every stream has done its work."""
    if run.device == "cuda":
        torch.cuda.synchronize()
    return torch.cat([p.detach().double().flatten() for p in run.lane.model.parameters()]).cpu()


def course(configs: Sequence[Config], at: Sequence[int], options: argparse.Namespace) -> dict[int, Tensor]:
    """Weights of the first config after so many steps of all."""
    runs = [LaneRun(c, Path("none"), root=options.root, device=options.device, first={}) for c in configs]
    steps, found = [run.steps(lambda: False) for run in runs], {}
    for done in range(1, max(at) + 1):
        for each in steps:
            next(each)
        if done in at:
            found[done] = weights(runs[0])
    return found


def compared(name: str, configs: Sequence[Config], options: argparse.Namespace) -> dict[str, Any]:
    """Distances between the same steps, made four times."""
    at = sorted({1, min(4, options.steps), min(30, options.steps), options.steps})
    alone, again = (course(configs[:1], at, options) for _ in range(2))
    beside, beside_again = (course(configs, at, options) for _ in range(2))
    pairs = {
        "moved": (alone, dict.fromkeys(at, alone[1])),
        "alone twice": (alone, again),
        "alone and beside": (alone, beside),
        "beside twice": (beside, beside_again),
    }
    apart = {
        key: {str(done): float((one[done] - two[done]).norm()) for done in at}
        for key, (one, two) in pairs.items()
    }
    return {
        "kind": "steps",
        "network": name,
        "beside": len(configs) - 1,
        "steps": options.steps,
        "apart": apart,
    }


def masks(fuse: bool) -> dict[str, Any]:
    """Dropout in captured steps on streams of their own, each with a product of matrices to keep it busy."""
    found = [_DropoutLane(fuse) for _ in range(LANES)]
    torch.cuda.synchronize()
    for _ in range(REPLAYS):
        for lane in found:
            with torch.cuda.stream(lane.stream):
                lane.step()
    torch.cuda.synchronize()
    seen = torch.stack([lane.seen for lane in found]).cpu()
    return {
        "kind": "masks", "fused": fuse, "lanes": LANES, "replays": REPLAYS, "rate": RATE,
        "different": len({float(value) for value in seen[..., 0].flatten()}), "kept": float(seen[..., 1].mean()),
        "gradient_differs": float(seen[..., 2].max()),
    }  # fmt: skip


class _DropoutLane:
    """A step that writes down a fingerprint of its mask, the share kept, and where the gradient saw another."""

    def __init__(self, fuse: bool) -> None:
        self.stream = torch.cuda.Stream()
        self.x = torch.rand(1 << 16, device="cuda") + 1
        self.busy = torch.randn(2048, 2048, device="cuda")
        self.key = torch.randn(1 << 16, device="cuda", dtype=torch.float64)
        self.seen = torch.zeros(REPLAYS, 3, device="cuda", dtype=torch.float64)
        self.at = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.drop = torch.compile(_drop, dynamic=False) if fuse else _drop
        self.step = captured(self._step, self.stream)

    def _step(self) -> None:
        x = self.x.clone().requires_grad_()
        y = self.drop(x)
        self.busy.copy_(torch.tanh(self.busy @ self.busy * 0.01))
        y.sum().backward()
        assert x.grad is not None
        kept = y > 0
        row = [(kept * self.key).sum(), kept.double().mean(), ((x.grad > 0) != kept).double().mean()]
        self.seen.index_copy_(0, self.at, torch.stack(row).unsqueeze(0))
        self.at += 1


def _drop(x: Tensor) -> Tensor:
    return F.dropout(x, RATE, True) * 2.0


def families(tiny: bool) -> dict[str, list[Config]]:
    """The configs that are compared, the one under test first."""
    small: dict[str, Any] = (
        {"train": 64, "validation": 32, "test": 32, "batch": 16, "size": "smoke"} if tiny else {}
    )
    nine = collier2020.TABLES["table6"].make("paper", "cifar10", None)
    wide = englesson2023.TABLES["table1-cifar10"].make("paper", None, None)
    still = {"network_options": (*nine[0].network_options, ("dropout", 0.0))}
    asymmetric = [c for c in wide if (c.noise, c.rate) == ("asymmetric", 0.4)]

    def pick(made: Sequence[Config], methods: Sequence[str], **changed: Any) -> list[Config]:
        first = {c.method: c for c in made if c.seed == 0}
        return [dataclasses.replace(first[m], **changed, **small) for m in methods]

    return {
        "cnn9": pick(nine, ("ce", "bootstrap", "bootstrap", "ce"), **still),
        "wrn-28-2": pick(asymmetric, ("ce", "ln", "gce", "ce")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", help="folder of data sets; DUBITO_DATA if not given")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--tiny", action="store_true", help="a few small steps, on any device")
    options = parser.parse_args()
    commit, dirty = provenance()
    hardware = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    with settings(LANES), options.out.open("a") as file:
        found = [compared(name, configs, options) for name, configs in families(options.tiny).items()]
        found += [masks(fuse) for fuse in (False, True)] if options.device == "cuda" else []
        for row in found:
            head = {"benchmark": "company", "hardware": hardware, "commit": commit, "dirty": dirty}
            file.write(json.dumps({**head, **row}, sort_keys=True) + "\n")
            print(row, flush=True)


if __name__ == "__main__":
    main()
