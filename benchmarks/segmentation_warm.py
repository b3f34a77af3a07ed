"""The kernels of the CamVid lanes: compiled into the cache on disk, compared with the CPU, and timed.

    python benchmarks/segmentation_warm.py

The last line is how many milliseconds one step of all runs spends in the links.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from segmentation_steps import Full, fixed_link
from torch import Tensor

from dubito.links import expected_softmax_nll


def main() -> None:
    """Compile the kernels that the lanes will use, into the cache on disk, and compare them with the CPU."""
    source = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(512, 11, generator=source), torch.rand(512, 11, generator=source) + 0.2
    target, weight = torch.randint(11, (512,), generator=source), torch.randn(512, 11, generator=source)

    def both(device: str, tau: float, full: bool) -> list[Tensor]:
        m, s = (x.clone().to(device).requires_grad_() for x in (mean, scale))
        if not full:
            found = fixed_link(m, s, torch.full((512, 1), tau, device=device), 64 if tau >= 0.5 else 128)[0]
            loss = (found * weight.to(device)).sum()
        elif device == "cuda":
            found = Full.apply(m, s, torch.full((1, 1), tau, device=device), target.to(device))[0]  # type: ignore[no-untyped-call]
            loss = -found.sum()
        else:
            found = -expected_softmax_nll(m, s, target, temperature=tau, reduction="none")
            loss = -found.sum()
        loss.backward()
        return [x.detach().cpu() for x in (found, m.grad, s.grad) if x is not None]

    for tau, full in ((1.0, False), (0.05, False), (1.0, True)):
        for ours, theirs in zip(both("cuda", tau, full), both("cpu", tau, full)):
            off = float((ours - theirs).abs().max() / theirs.abs().max())
            print(f"kernels, temperature {tau}, full size {full}: off by {off:.1e}", flush=True)
            if not off < 2e-2:
                raise SystemExit("the kernels differ from the CPU")
    print("milliseconds", 36 * _link_time(1.0) + 6 * _full_time(1.0), flush=True)


def _link_time(tau: float, rows: int = 33_280) -> float:
    mean = torch.randn(rows, 11, device="cuda").requires_grad_()
    scale, taus = (
        torch.rand(rows, 11, device="cuda").add(0.2).requires_grad_(),
        torch.full((rows, 1), tau, device="cuda"),
    )
    return _timed(lambda: fixed_link(mean, scale, taus, 64)[0].square().mean().backward())


def _full_time(tau: float, rows: int = 532_480) -> float:
    mean, target = (
        torch.randn(rows, 11, device="cuda").requires_grad_(),
        torch.randint(11, (rows,), device="cuda"),
    )
    scale, taus = (
        torch.rand(rows, 11, device="cuda").add(0.2).requires_grad_(),
        torch.full((1, 1), tau, device="cuda"),
    )
    return _timed(lambda: Full.apply(mean, scale, taus, target)[0].mean().backward())  # type: ignore[no-untyped-call]


def _timed(work: Any, turns: int = 5) -> float:
    """Milliseconds of one call, the first left out."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(turns):
        work()
    torch.cuda.synchronize()
    took = 1e3 * (time.perf_counter() - begun) / turns
    print(f"{took:.2f} ms", flush=True)
    return took


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
