"""Times of the kernels alone over shapes of their tiles, so that the defaults can be checked on new hardware.

python benchmarks/expected_softmax_tiles.py --out tiles.jsonl
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from expected_softmax import Batch, Log


def tiles(log: Log, budget: float) -> None:
    """Shapes of the kernels' tiles, so that the defaults can be checked on new hardware; and rows that miss."""
    import triton

    from dubito.integrals import triton_qmc, triton_quadrature
    from dubito.integrals.noise import sobol_bank

    for rows, classes, draws in ((33_282, 21, 128), (1_024, 1_000, 256)):
        batch = Batch(rows, classes, 1.0, 0, "cuda", torch.float32)
        mean, scale, tau = batch.mean.detach(), batch.scale.detach(), torch.ones(1, 1, device="cuda")
        bank, _ = sobol_bank(draws, classes, 0, 0, "normal", mean.device, torch.float32)
        for nodes, points, warps in ((32, 16, 1), (32, 16, 2), (32, 16, 4), (32, 16, 8), (64, 32, 8)):
            first = ((nodes, points, warps),)
            run = lambda: triton_quadrature.nll(mean, scale, tau, batch.target, shapes=first)  # noqa: B023, E731
            log_p, error, *_ = run()
            missed = int((~(error <= 2e-5 + triton_quadrature.ALLOWED * log_p.abs())).sum())
            log(
                "tile of quadrature", rows=rows, classes=classes, nodes=nodes, points=points, warps=warps,
                ms=_bench(run, budget), missed=missed,
            )  # fmt: skip
        run = lambda: triton_quadrature.nll(mean, scale, tau, batch.target)  # noqa: B023, E731
        log_p, error, *_ = run()
        missed = int((~(error <= 2e-5 + triton_quadrature.ALLOWED * log_p.abs())).sum())
        log("both launches", rows=rows, classes=classes, ms=_bench(run, budget), missed=missed)
        small = triton.next_power_of_2(classes)
        kinds = ((64, 2), (128, 4), (32, 1)) if small <= 32 else ((1, 2), (1, 4), (1, 8))
        for block, warps in kinds:
            tile = {"BLOCK_K": small, "BLOCK_R": block, "num_warps": warps}
            run = lambda: triton_qmc.nll(mean, scale, tau, batch.target, bank, tile)  # noqa: B023, E731
            log(
                "tile of qmc", rows=rows, classes=classes, draws=draws, rows_per_program=block, warps=warps,
                ms=_bench(run, budget),
            )  # fmt: skip


def _bench(run: Callable[[], object], budget: float) -> float:
    run()
    torch.cuda.synchronize()
    values, begin = [], time.perf_counter()
    while len(values) < 5 or (time.perf_counter() - begin < budget and len(values) < 100):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        values.append(float(start.elapsed_time(end)))
    return statistics.median(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file of JSON lines")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds of repetitions per figure")
    options = parser.parse_args()
    tiles(Log(options.out, "cuda"), options.budget)


if __name__ == "__main__":
    main()
