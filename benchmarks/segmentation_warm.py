"""The kernels of the CamVid lanes: compiled into the cache on disk, compared with the CPU, and timed.

    python benchmarks/segmentation_warm.py link
    python benchmarks/segmentation_warm.py full
    python benchmarks/segmentation_warm.py full --points 256

Fails if they differ. The last line is the milliseconds of a call there and back, at the size of a step.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from segmentation_links import Full, banks_of, fixed_link
from torch import Tensor

from dubito.links import expected_softmax_nll

ROWS = {"link": 33_280, "full": 532_480}


def loss_of(what: str, inputs: list[Tensor], tau: float, bank: Tensor | None) -> Tensor:
    """A number that depends on every row: by the kernels on a GPU, by the library's own way on a CPU."""
    mean, scale, weight, target = inputs
    here = {"device": mean.device}
    if what == "link":
        taus = torch.full((len(mean), 1), tau, **here)
        return (fixed_link(mean, scale, taus, 64 if tau >= 0.5 else 128)[0] * weight).sum()
    if mean.is_cuda:
        found = Full.apply(mean, scale, torch.full((1, 1), tau, **here), target, bank)[0]  # type: ignore[no-untyped-call]
    else:
        found = -expected_softmax_nll(mean, scale, target, temperature=tau, reduction="none")
    return (found * weight[:, 0]).sum()


def drawn(rows: int, device: str) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    mean, weight = (torch.randn(rows, 11, generator=source) for _ in range(2))
    scale, target = torch.rand(rows, 11, generator=source) + 0.2, torch.randint(11, (rows,), generator=source)
    made = [x.to(device) for x in (mean, scale, weight, target)]
    return [x.requires_grad_() for x in made[:2]] + made[2:]


def gradients(what: str, tau: float, bank: Tensor | None, device: str) -> list[Tensor]:
    inputs = drawn(512, device)
    loss = loss_of(what, inputs, tau, bank)
    return [loss.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(loss, inputs[:2]))]


def timed(work: Any, turns: int = 5) -> float:
    """Milliseconds of a call, the first two left out."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(turns):
        work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begun) / turns


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=sorted(ROWS))
    parser.add_argument("--points", type=int)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.set_num_threads(1)
    banks = banks_of(args.points, 11, torch.device(args.device))
    bank = None if banks is None else banks[0]
    for tau in (1.0, 0.05) if args.what == "link" else (1.0,):
        pairs = zip(gradients(args.what, tau, bank, args.device), gradients(args.what, tau, None, "cpu"))
        off = [float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in pairs]
        print(f"{args.what}, temperature {tau}: off by {max(off):.1e}", flush=True)
        if not max(off) < (2e-2 if bank is None else 0.2):
            raise SystemExit("the kernels differ from the CPU")
    if args.device == "cuda":
        inputs = drawn(ROWS[args.what], "cuda")
        print("milliseconds", timed(lambda: loss_of(args.what, inputs, 1.0, bank).backward()), flush=True)


if __name__ == "__main__":
    main()
