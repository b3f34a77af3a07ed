"""The page that compares arithmetic: runs with convolutions in bfloat16 beside the same runs in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean, stdev

from dubito.papers.results import Result


def precision_page(half: Sequence[Result], full: Sequence[Result]) -> str:
    """Pairs of runs with one config: accuracy by column in both, and the difference."""
    by_id = {r.id: r for r in full}
    pairs = [(r, by_id[r.id]) for r in half if r.id in by_id]
    return "\n".join(_lines(pairs)) + "\n"


def _lines(pairs: Sequence[tuple[Result, Result]]) -> Iterator[str]:
    yield "# Does the arithmetic matter?"
    yield ""
    yield "Written by `python tools/results_pages.py` from `results/precision/`; do not edit."
    yield ""
    yield (
        f"{len(pairs)} runs of the logistic-normal likelihood on MNIST were made twice from one config and seed: "
        "with convolutions in bfloat16 and with everything in float32. "
        "The tables of the paper use the float32 runs. "
        "The other methods have run in bfloat16 only."
    )
    yield ""
    yield "| noise | rate | lam | temperature | seeds | bfloat16 | float32 | difference |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    columns: dict[tuple[str, float], list[tuple[Result, Result]]] = {}
    for pair in pairs:
        columns.setdefault((pair[0].config.noise, pair[0].config.rate), []).append(pair)
    for (noise, rate), group in columns.items():
        halves, fulls = ([100 * r.metrics["test_accuracy"] for r in runs] for runs in zip(*group))
        config = group[0][0].config
        yield (
            f"| {noise} | {rate:g} | {config.param('lam'):g} | {config.param('temperature'):g} | {len(group)} "
            f"| {_spread(halves)} | {_spread(fulls)} | {mean(fulls) - mean(halves):+.2f} |"
        )
    yield ""
    yield "Test accuracy in per cent, mean ± standard deviation over seeds."


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{mean(values):.2f}"
