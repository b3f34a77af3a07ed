"""Speed, memory and error of the expected softmax: quadrature and quasi Monte Carlo against eager Monte Carlo.

    python benchmarks/expected_softmax.py --out results/expected_softmax.jsonl

One line of JSON per figure. The work is forward + backward of the mean NLL, inputs ready. Methods alternate in
blocks of calls (`alternated`); `ms` is the median of a call, `first_ms` that of the first call of a block. Errors
are against the float64 quadrature at a tolerance of 1e-9, which the tests hold against independent code and mpmath.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import sys
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from alternated import Times, alternated
from torch import Tensor
from torch.nn import functional as F

from dubito.integrals import expected_softmax_nll
from dubito.integrals.quadrature import solve

Work = Callable[["Batch"], Tensor]
SETS = 4  # of draws, over which the errors of the sampled forms are averaged


class Batch:
    """Inputs of one timing, with gradients wanted."""

    def __init__(
        self, rows: int, classes: int, tau: float, seed: int, device: str, dtype: torch.dtype
    ) -> None:
        g = torch.Generator().manual_seed(seed)
        self.mean = (2 * torch.randn(rows, classes, generator=g)).to(device, dtype).requires_grad_()
        self.scale = F.softplus(torch.randn(rows, classes, generator=g)).to(device, dtype).requires_grad_()
        self.target = torch.randint(classes, (rows,), generator=g).to(device)
        self.tau = tau

    def backward(self, loss: Tensor) -> None:
        torch.autograd.grad(loss, (self.mean, self.scale))


def eager(batch: Batch, samples: int = 1000) -> Tensor:
    """What every public implementation does: a samples x rows x classes tensor."""
    mean, scale = batch.mean.float(), batch.scale.float()
    noise = torch.randn(samples, *mean.shape, device=mean.device)
    log_p = torch.log_softmax((mean + scale * noise) / batch.tau, -1)
    own = log_p.gather(-1, batch.target.expand(samples, -1).unsqueeze(-1)).squeeze(-1)
    return -(torch.logsumexp(own, 0) - torch.tensor(float(samples)).log()).mean()


def quadrature(batch: Batch) -> Tensor:
    return expected_softmax_nll(
        batch.mean, batch.scale, batch.target, temperature=batch.tau, method="quadrature"
    )


def qmc(samples: int) -> Work:
    def work(batch: Batch) -> Tensor:
        return expected_softmax_nll(
            batch.mean, batch.scale, batch.target, temperature=batch.tau, method="qmc", samples=samples
        )

    return work


def medians(
    works: dict[str, Work], batches: list[Batch], budget_s: float, least: int = 7
) -> dict[str, Times]:
    """Of alternated blocks of calls, over rotated inputs."""

    def rotated(work: Work) -> Callable[[], None]:
        inputs = cycle(batches)

        def call() -> None:
            batch = next(inputs)
            batch.backward(work(batch))

        return call

    calls = {name: rotated(work) for name, work in works.items()}
    return alternated(calls, batches[0].mean.is_cuda, budget_s, least)


def peak_extra(work: Work, batch: Batch) -> float | None:
    """MiB above the inputs, on a GPU."""
    if not batch.mean.is_cuda:
        return None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    batch.backward(work(batch))
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def errors(works: dict[str, Work], batch: Batch, most_rows: int = 512) -> dict[str, dict[str, float]]:
    """Root mean square error of log p, and of the gradient relative to its norm, over some rows."""
    out = {}
    small = Batch(1, batch.mean.shape[1], batch.tau, 0, "cpu", torch.float32)
    rows = min(most_rows, len(batch.mean))
    inputs = [x.detach()[:rows].double().cpu() for x in (batch.mean, batch.scale)]
    tau = torch.full((rows, 1), batch.tau, dtype=torch.float64)
    truth, _ = solve(*inputs, tau, batch.target[:rows].cpu(), 1e-9)
    for name, work in works.items():
        small.mean, small.scale = (x.detach()[:rows].requires_grad_() for x in (batch.mean, batch.scale))
        small.target = batch.target[:rows]
        loss = work(small)
        grads = torch.autograd.grad(loss, (small.mean, small.scale))
        gradient = torch.cat([-g.double().cpu() * rows for g in grads], -1)
        wanted = torch.cat([truth.d_mean, truth.d_scale], -1)
        out[name] = {
            "error_mean_nll": float(abs(loss.detach().double().cpu() + truth.log_p.mean())),
            "error_gradient": float((gradient - wanted).norm() / wanted.norm()),
        }
    return out


def pointwise(batch: Batch, samples: dict[str, int]) -> dict[str, float]:
    """Root mean square errors of log p and of p, for Monte Carlo and banks of several sizes, over some sets."""
    rows = min(512 if batch.mean.shape[1] <= 100 else 64, len(batch.mean))
    mean, scale, target = (x.detach()[:rows] for x in (batch.mean, batch.scale, batch.target))
    tau = torch.full((rows, 1), batch.tau, dtype=torch.float64)
    truth = solve(mean.double().cpu(), scale.double().cpu(), tau, target.cpu(), 1e-9)[0].log_p
    out = {}
    for name, count in samples.items():
        method, squares = name.split(" ")[0], torch.zeros(2, dtype=torch.float64)
        for seed in range(SETS):
            loss = expected_softmax_nll(
                mean, scale, target, temperature=batch.tau, method=method, samples=count, reduction="none",
                generator=torch.Generator().manual_seed(seed),
            )  # fmt: skip
            found = -loss.double().cpu()
            off = torch.stack([found - truth, found.exp() - truth.exp()])
            squares += off.square().mean(-1) / SETS
        out[name], out[f"{name}, p"] = squares.sqrt().tolist()
    return out


class Log:
    """Writes one JSON object per line and remembers them."""

    def __init__(self, path: str | None, device: str) -> None:
        self.file = None
        if path:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115
        name = (
            torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
        )
        self.common = {
            "command": "python benchmarks/" + " ".join(Path(word).name for word in sys.argv),
            "hardware": name,
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "torch": torch.__version__,
            "date": datetime.date.today().isoformat(),
        }
        self.lines: list[dict[str, Any]] = []

    def __call__(self, what: str, **facts: Any) -> None:
        line = {"what": what, **facts, **self.common}
        self.lines.append(line)
        print(what, {k: (round(v, 6) if isinstance(v, float) else v) for k, v in facts.items()}, flush=True)
        if self.file:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


def compare(
    log: Log, rows: int, classes: int, tau: float, device: str, dtype: torch.dtype, budget: float, *draws: int
) -> None:
    """One row of the table: eager Monte Carlo, quadrature, and banks at Monte Carlo's error."""
    batches = [Batch(rows, classes, tau, seed, device, dtype) for seed in range(3)]
    works: dict[str, Work] = {"eager": eager, "quadrature": quadrature}
    works |= {f"qmc {count}": qmc(count) for count in draws}
    times = medians(works, batches, budget)
    wrong = errors(works, batches[0])
    inputs = batches[0].mean.numel() * batches[0].mean.element_size() * 2 / 2**20
    for name, work in works.items():
        extra = peak_extra(work, batches[0])
        log(
            "nll",
            rows=rows, classes=classes, tau=tau, dtype=str(dtype).removeprefix("torch."), method=name,
            ms=times[name].ms, spread_ms=times[name].spread, faster=times["eager"].ms / times[name].ms,
            first_ms=times[name].first, faster_first=times["eager"].first / times[name].first,
            cpu_ms=_known(times[name].cpu), faster_cpu=_known(times["eager"].cpu / times[name].cpu),
            extra_mib=extra, extra_over_inputs=None if extra is None else extra / inputs, **wrong[name],
        )  # fmt: skip


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def growth(log: Log, device: str, budget: float) -> None:
    """Time of the quadrature against classes and rows: linear."""
    rows = 256 if device == "cuda" else 64
    for classes in (10, 30, 100, 300, 1000, 3000, 10_000):
        _grown(log, "growth in classes", rows, classes, device, budget)
    for rows in (100, 1000, 10_000, 100_000, 1_000_000):
        _grown(log, "growth in rows", rows, 10, device, budget)


def _grown(log: Log, what: str, rows: int, classes: int, device: str, budget: float) -> None:
    batch = [Batch(rows, classes, 1.0, 0, device, torch.float32)]
    large = device == "cpu" and rows * classes > 10**6
    found = medians({"q": quadrature}, batch, budget, least=1 if large else 3)["q"]
    per = found.ms * 1e6 / rows / classes
    log(
        what, rows=rows, classes=classes, ms=found.ms, spread_ms=found.spread, cpu_ms=_known(found.cpu),
        ns_per=per,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file of JSON lines")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--budget", type=float, default=0.6, help="seconds of repetitions per figure")
    parser.add_argument("--threads", type=int, help="of the CPU")
    parser.add_argument("--parts", default="table,errors,growth", help="which of them, with commas")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    log = Log(options.out, options.device)
    if "table" in options.parts:
        table(log, options.device, options.budget)
    if "errors" in options.parts:
        for classes in (10, 21, 100, 1000):
            for tau in (0.5, 1.0, 5.0):
                batch = Batch(512, classes, tau, 0, options.device, torch.float32)
                counts = {"mc 1000": 1000, "qmc 64": 64, "qmc 128": 128, "qmc 256": 256}
                log("error of log p and of p", classes=classes, tau=tau, **pointwise(batch, counts))
    if "growth" in options.parts:
        growth(log, options.device, options.budget / 3)


def table(log: Log, device: str, budget: float) -> None:
    """The sizes with a target."""
    if device == "cuda":
        for rows, classes in ((33_282, 21), (133_128, 21), (1_024, 1_000), (17_424, 21)):
            compare(log, rows, classes, 1.0, "cuda", torch.float32, budget, 128, 256)
        compare(log, 33_282, 21, 1.0, "cuda", torch.bfloat16, budget, 128)
        return
    for classes in (10, 100):
        for tau in (0.5, 5.0):
            compare(log, 256, classes, tau, "cpu", torch.float32, budget, 128)


if __name__ == "__main__":
    main()
