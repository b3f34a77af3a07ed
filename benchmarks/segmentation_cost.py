"""What heteroscedastic segmentation costs: steps against the homoscedastic model, the link against samples, memory.

    python benchmarks/segmentation_cost.py --out results/segmentation/cost.jsonl

Times are medians of alternated calls in one process. One line of JSON per figure, written as it is found.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from dubito import optim
from dubito.segmentation import Pixels
from segmentation import append, model_of, stamp


def _timed(work: Callable[[], object], device: str) -> float:
    """Milliseconds of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def _alternated(works: dict[str, Callable[[], object]], device: str, turns: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        for _ in range(3):
            _timed(work, device)
    for _ in range(turns):
        for name, work in works.items():
            times[name].append(_timed(work, device))
    return {name: statistics.median(values) for name, values in times.items()}


def eager_samples(mean: Tensor, scale: Tensor, tau: float, samples: int = 1000) -> Tensor:
    """What every public implementation does: all draws of all pixels at once."""
    noise = torch.randn(samples, *mean.shape, device=mean.device)
    log_p = torch.log_softmax((mean + scale * noise) / tau, -1)
    return torch.logsumexp(log_p, 0) - float(np.log(samples))


def speed(args: argparse.Namespace, device: str) -> None:
    """Whole steps against the homoscedastic model, and the link alone against 1,000 samples."""
    from dubito.links import expected_log_softmax

    sizes = [(16, 180, 240, 11), (8, 512, 512, 21)] if args.few is None else [(2, 36, 48, 11)]
    for n, height, width, classes in sizes:
        rows = n * -(-height // 4) * -(-width // 4)
        for tau in (0.05, 1.0):
            g = torch.Generator().manual_seed(0)
            mean = (2 * torch.randn(rows, classes, generator=g)).to(device).requires_grad_()
            scale = F.softplus(torch.randn(rows, classes, generator=g)).to(device).requires_grad_()
            weight = torch.randn(rows, classes, generator=g).to(device) / rows

            def link(make: Callable[[], Tensor], inputs: Any = (mean, scale), w: Tensor = weight) -> Any:
                return torch.autograd.grad((make() * w).sum(), inputs)

            works: dict[str, Callable[[], object]] = {
                "exact": lambda: link(lambda: expected_log_softmax(mean, scale, temperature=tau)),  # noqa: B023
                "qmc 256": lambda: link(
                    lambda: expected_log_softmax(mean, scale, temperature=tau, method="qmc", samples=256)  # noqa: B023
                ),
                "samples 1000": lambda: link(lambda: eager_samples(mean, scale, tau)),  # noqa: B023
            }
            found = _alternated(works, device, 5 if args.few is None else 1)
            line = {"what": "link", "rows": rows, "classes": classes, "tau": tau, "milliseconds": found}
            line["samples_over_exact"] = found["samples 1000"] / found["exact"]
            append(args.out, {**line, **stamp(device)})
        steps = {
            name: _step(n, height, width, classes, job, device)
            for name, job in {
                "homoscedastic": {"tau": None, "upsample": "log_probs"},
                "exact, tau 1": {"tau": 1.0, "upsample": "log_probs"},
                "exact, tau .05": {"tau": 0.05, "upsample": "log_probs"},
                "exact at full size, tau 1": {"tau": 1.0, "upsample": "latent"},
                "qmc 256, tau 1": {"tau": 1.0, "upsample": "log_probs", "integration": "qmc"},
            }.items()
        }
        found = _alternated(steps, device, 15 if args.few is None else 1)
        ratios = {name: value / found["homoscedastic"] for name, value in found.items()}
        line = {"what": "step", "batch": [n, height, width, classes], "milliseconds": found, "ratios": ratios}
        append(args.out, {**line, **stamp(device)})


def _step(
    n: int, height: int, width: int, classes: int, job: dict[str, Any], device: str
) -> Callable[[], object]:
    """Forward, backward and update on a fixed batch, without the loader."""
    from dubito._batches import Batch

    model = model_of({"seed": 0, **job}, classes).to(device)
    if device == "cuda":
        model.backbone.to(memory_format=torch.channels_last)
    trained = Pixels(model).to(device).train()
    optimizer = optim.adam(trained.named_parameters())
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, height, width, generator=g).to(device)
    y = torch.randint(classes, (n, height, width), generator=g).to(device)
    batch = Batch(torch.arange(n, device=device), x, y, complete=True)

    def work() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            total = trained(batch, lambda purpose: torch.Generator(device=device).manual_seed(0))
        total.backward()
        optimizer.step()

    return work


def memory(args: argparse.Namespace, device: str) -> None:
    """Peak bytes of a step with 21 classes at 512 x 512, beyond those of the network alone."""
    if device != "cuda":
        raise SystemExit(
            "the peak of a step is measured on a GPU; tests/segmentation measures that of a process"
        )
    n, size, classes = (8, 512, 21) if args.few is None else (2, 64, 21)
    x = torch.randn(n, 3, size, size, device=device)
    for tau, where in (
        (None, "log_probs"),
        (0.05, "log_probs"),
        (1.0, "log_probs"),
        (1.0, "latent"),
        (1.0, "features"),
    ):
        work = _step(n, size, size, classes, {"tau": tau, "upsample": where}, device)
        work()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        whole = torch.cuda.max_memory_allocated() - before
        model = model_of({"seed": 0, "tau": tau, "upsample": where}, classes).to(device)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.autocast(device, torch.bfloat16):
            model.backbone(x).float().square().mean().backward()
        network = torch.cuda.max_memory_allocated() - before
        line = {"what": "memory", "batch": [n, size, size, classes], "tau": tau, "upsample": where}
        gigabytes = {"step": whole / 1e9, "network": network / 1e9, "beyond": (whole - network) / 1e9}
        append(args.out, {**line, "gigabytes": gigabytes, **stamp(device)})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results/segmentation/cost.jsonl"))
    parser.add_argument("--few", type=int, help="tiny sizes, to try the script")
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    speed(args, device)
    if device == "cuda":
        memory(args, device)


if __name__ == "__main__":
    main()
