"""Low-rank latents: points over the factors around the exact integral, or quasi-random points over everything?

    python benchmarks/low_rank.py --out results/benchmarks/low_rank.jsonl --workers 14

For each rank, number of classes and temperature: the root mean square error of log p and the time of forward +
backward, of both ways at several sizes, one thread each. The reference is the first way with many points, and its
own standard error stands beside it. `docs/expected-softmax.md` shows the errors at equal cost. In a batch of very
few rows the search for the place of the points, a dozen small passes, would weigh more than it does in training.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from dubito.integrals import Report, expected_softmax_nll
from dubito.integrals.border import Gaussian
from dubito.integrals.factors import Rule, factor_log_likelihood, hermite_rule, sobol_rule
from dubito.integrals.sampling import by_qmc

RANKS, CLASSES, TAUS = (1, 2, 3, 4, 6, 10), (10, 21, 100), (0.05, 0.2, 1.0, 5.0)
DRAWS = (64, 256, 1024, 4096, 16384)
ORDERS = {1: (3, 6, 12, 24), 2: (3, 5, 8, 12), 3: (2, 3, 5, 8)}
POINTS = (16, 64, 256, 1024)
REPEATS = 3


def rows(count: int, classes: int, rank: int, tau: float) -> tuple[Gaussian, Tensor]:
    """What a low-rank head makes: means of 2, scales around 0.8, factors with a variance of 1 in all."""
    g = torch.Generator().manual_seed(0)
    mean = 2 * torch.randn(count, classes, generator=g)
    scale = F.softplus(torch.randn(count, classes, generator=g))
    factors = torch.randn(count, classes, rank, generator=g) / math.sqrt(rank)
    # Labels as the model would draw them, so that probabilities are of ordinary size.
    noisy = mean + scale * torch.randn(count, classes, generator=g)
    noisy = noisy + (factors @ torch.randn(count, rank, 1, generator=g)).squeeze(-1)
    target = torch.distributions.Gumbel(0.0, 1.0).icdf(torch.rand(count, classes, generator=g).clamp(1e-6))
    return Gaussian(mean, scale, factors, torch.full((count, 1), tau)), (noisy + tau * target).argmax(-1)


def wanting_gradients(latent: Gaussian) -> Gaussian:
    return Gaussian(*(x.detach().clone().requires_grad_() for x in latent))  # type: ignore[union-attr]


def inner(latent: Gaussian, target: Tensor, rule: Rule, seed: int) -> Tensor:
    """log p by a rule over the factors around the exact integral."""
    return factor_log_likelihood(latent, target, 1e-4, seed, fixed=rule)[0]


def full(latent: Gaussian, target: Tensor, draws: int, seed: int) -> Tensor:
    """log p by quasi-random points over factors and classes."""
    return by_qmc(latent, draws, seed, "normal").gather(-1, target.unsqueeze(-1)).squeeze(-1)


def reference(latent: Gaussian, target: Tensor) -> tuple[Tensor, float]:
    """log p in float64 and its standard error."""
    wide = Gaussian(*(x.double() for x in latent))  # type: ignore[union-attr]
    with torch.no_grad():
        if latent.rank <= 2:
            values = [inner(wide, target, hermite_rule(latent.rank, n, wide.mean), 0) for n in (31, 40)]
            return values[1], float((values[1] - values[0]).square().mean().sqrt())
        points = 2048 if latent.mean.shape[-1] < 100 else 1024
        values = [
            inner(wide, target, sobol_rule(points, latent.rank, 100 * s + 7, wide.mean), 0) for s in range(4)
        ]
    mean = torch.logsumexp(torch.stack(values), 0) - math.log(len(values))
    return mean, float(torch.stack(values).std(0).square().mean().sqrt() / math.sqrt(len(values)))


def measured(work: Any, latent: Gaussian, truth: Tensor, seeds: int) -> dict[str, float]:
    """Median milliseconds of the processor for forward + backward, and the error over some seeds."""
    times, errors = [], []
    for seed in range(max(REPEATS, seeds)):
        inputs = wanting_gradients(latent)
        begin = time.process_time()
        log_p = work(inputs, seed)
        torch.autograd.grad(log_p.sum(), [inputs.mean, inputs.scale, inputs.factors])
        times.append((time.process_time() - begin) * 1e3)
        errors.append(float((log_p.detach().double() - truth).square().mean()))
    return {"ms": statistics.median(times), "error": math.sqrt(sum(errors) / len(errors))}


def automatic(latent: Gaussian, target: Tensor, truth: Tensor) -> dict[str, Any]:
    """What "auto" takes, its estimate of the error, the error, and in how many rows the estimate covers it."""
    reports: list[Report] = []
    begin = time.process_time()
    with torch.no_grad():
        loss = expected_softmax_nll(
            latent.mean, latent.scale, target, factors=latent.factors, temperature=latent.temperature,
            reduction="none", report=reports.append,
        )  # fmt: skip
    spent, (report,) = (time.process_time() - begin) * 1e3, reports
    off = (-loss.double() - truth).abs()
    estimate = torch.as_tensor(report.error).double().expand_as(off)
    return {
        "way": "auto", "method": report.method, "points": report.points, "forward_ms": spent,
        "error": float(off.square().mean().sqrt()), "worst": float(off.max()),
        "estimate": float(estimate.square().mean().sqrt()), "tol": report.tol, "reached": report.reached,
        "within_estimate": float((off <= estimate).double().mean()),
        "within_three": float((off <= 3 * estimate).double().mean()),
    }  # fmt: skip


def cell(rank: int, classes: int, tau: float, count: int) -> list[dict[str, Any]]:
    """All lines of one rank, number of classes and temperature."""
    torch.set_num_threads(1)
    latent, target = rows(count, classes, rank, tau)
    truth, own = reference(latent, target)
    place = {"rank": rank, "classes": classes, "tau": tau, "rows": count, "reference_error": own}
    lines = [{**place, **automatic(latent, target, truth)}]
    for draws in DRAWS:
        found = measured(lambda x, seed: full(x, target, draws, 31 * seed), latent, truth, REPEATS)  # noqa: B023
        lines.append({**place, "way": "everything", "points": draws, **found})
    rules = {n: hermite_rule(rank, n, latent.mean) for n in ORDERS.get(rank, ())}
    for rule in rules.values():
        found = measured(lambda x, seed: inner(x, target, rule, seed), latent, truth, 1)  # noqa: B023
        lines.append({**place, "way": "factors, product rule", "points": len(rule.points), **found})
    for points in POINTS:
        found = measured(
            lambda x, seed: inner(x, target, sobol_rule(points, rank, 31 * seed, x.mean.detach()), seed),  # noqa: B023
            latent, truth, REPEATS,
        )  # fmt: skip
        lines.append({**place, "way": "factors, Sobol", "points": points, **found})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--taus", default=",".join(map(str, TAUS)))
    parser.add_argument("--classes", default=",".join(map(str, CLASSES)))
    options = parser.parse_args()
    common = {
        "command": f"python benchmarks/low_rank.py --rows {options.rows} --ranks {options.ranks} "
        f"--classes {options.classes} --taus {options.taus}",
        "hardware": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }
    ranks, classes = ([int(x) for x in text.split(",")] for text in (options.ranks, options.classes))
    taus = [float(x) for x in options.taus.split(",")]
    cells = sorted(product(ranks, classes, taus), key=lambda c: -c[1])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with (
        options.out.open("w", encoding="utf-8") as file,
        ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool,
    ):
        for done in as_completed([pool.submit(cell, *c, options.rows) for c in cells]):
            for line in done.result():
                file.write(json.dumps({**line, **common}) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
