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
        for nodes, points, warps in ((32, 32, 1), (64, 32, 1), (64, 32, 2)):
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
        log("all launches", rows=rows, classes=classes, ms=_bench(run, budget), missed=missed)
        small = triton.next_power_of_2(classes)
        kinds = ((64, 2),) if small <= 32 else ((1, 2), (1, 4), (1, 8))
        for block, warps in kinds:
            tile = ((small, block), warps)
            run = lambda: triton_qmc.nll(mean, scale, tau, batch.target, bank, tile)  # noqa: B023, E731
            log(
                "tile of qmc", rows=rows, classes=classes, draws=draws, rows_per_program=block, warps=warps,
                ms=_bench(run, budget),
            )  # fmt: skip
        run = lambda: triton_qmc.nll(mean, scale, tau, batch.target, bank, heat=False)  # noqa: B023, E731
        log("qmc as it is", rows=rows, classes=classes, draws=draws, ms=_bench(run, budget))


def _bench(run: Callable[[], object], budget: float) -> float:
    """Milliseconds of the device for one call among many in a row, so that it never waits for its host."""
    run()
    torch.cuda.synchronize()
    values, begin = [], time.perf_counter()
    busy = torch.empty(1 << 28, device="cuda")
    while len(values) < 3 or (time.perf_counter() - begin < budget and len(values) < 100):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(8):
            busy.zero_()  # meanwhile the calls queue up
        start.record()
        for _ in range(5):
            run()
        end.record()
        torch.cuda.synchronize()
        values.append(float(start.elapsed_time(end)) / 5)
    return statistics.median(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file of JSON lines")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds of repetitions per figure")
    options = parser.parse_args()
    tiles(Log(options.out, "cuda"), options.budget)


if __name__ == "__main__":
    main()
