"""The raw lines of the CamVid benchmarks, and how several seeds are summed up."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from dubito.metrics import paired_t_test

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "results" / "segmentation"
Cell = dict[int, dict[str, Any]]  # seed -> line
NOW, EARLIER, LOOP = "camvid", "camvid-earlier", "camvid-loop"
LABELS = {"clean": "Clean labels", "border": "Noisy borders"}
SCORES = (("mIoU", "mean_iou", 100.0, 2), ("log-likelihood", "log_likelihood", 1.0, 3))


def lines(name: str) -> list[dict[str, Any]]:
    """The raw lines of one file."""
    path = LINES / name
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def finished(series: str = NOW) -> list[dict[str, Any]]:
    """Runs on CamVid that have scores; a line that names no network is of the compact one."""
    return [{"network": "compact", **line} for line in lines(f"{series}.jsonl") if "test" in line]


def cells(
    labels: str, network: str = "compact", upsample: str = "log_probs", series: str = NOW
) -> dict[float | None, Cell]:
    """Temperature (None: homoscedastic) -> seed -> line."""
    found: dict[float | None, Cell] = {}
    for line in finished(series):
        if (line["labels"], line["network"], line["upsample"]) == (labels, network, upsample):
            found.setdefault(line["tau"], {})[line["seed"]] = line
    return dict(sorted(found.items(), key=lambda pair: -1.0 if pair[0] is None else pair[0]))


def fullest() -> str:
    """The series whose homoscedastic model and temperature 1 have the most seeds; the newer one if they tie."""

    def seeds(series: str) -> int:
        found = [cells(labels, series=series) for labels in ("clean", "border")]
        return min(len(of.get(tau, {})) for of in found for tau in (None, 1.0))

    return max((NOW, EARLIER), key=seeds)


def best(found: dict[float | None, Cell]) -> float:
    """The temperature with the highest mean validation mIoU (labels as they are), of those with every seed."""
    most = max(len(cell) for cell in found.values())
    whole = {tau: cell for tau, cell in found.items() if tau is not None and len(cell) == most}
    return max(
        whole, key=lambda tau: statistics.mean(line["val"]["mean_iou"] for line in whole[tau].values())
    )


def interval(values: Sequence[float], digits: int = 2, scale: float = 100.0) -> str:
    """Mean and half of Student's 95 % interval over seeds; a single value has none."""
    mean, half = mean_and_half([scale * v for v in values])
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if len(values) > 1 else "")


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half of Student's 95 % interval over seeds; 0 for a single value."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, float(student.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5


def told_apart(
    found: dict[float | None, Cell], key: str, scale: float = 1.0
) -> dict[float, tuple[float, float]]:
    """Temperature -> mean paired difference in a test score from the homoscedastic model, and half its interval."""
    apart = {}
    for tau, cell in found.items():
        seeds = sorted(set(cell) & set(found.get(None, {})))
        if tau is not None and len(seeds) > 2:
            apart[tau] = mean_and_half(
                [scale * (cell[s]["test"][key] - found[None][s]["test"][key]) for s in seeds]
            )
    return apart


def scores(of: Sequence[dict[str, Any]]) -> str:
    """Columns of test scores: mIoU, boundary IoU, log-likelihood, calibration error."""
    test = [line["test"] for line in of]
    return (
        f"{interval([t['mean_iou'] for t in test])} | {interval([t['boundary_iou'] for t in test])} "
        f"| {interval([t['log_likelihood'] for t in test], 3, 1.0)} | {interval([t['ece'] for t in test])}"
    )


def paired(name: str, ours: Cell, other: Cell) -> list[str]:
    """A sentence on two models by the seeds that both have; nothing for fewer than two."""
    seeds = sorted(set(ours) & set(other))
    if len(seeds) < 2:
        return []
    parts = []
    for what, key, scale, digits in (SCORES[0], ("boundary IoU", "boundary_iou", 100.0, 2), SCORES[1]):
        a, b = ([scale * cell[s]["test"][key] for s in seeds] for cell in (ours, other))
        test = paired_t_test(a, b)
        half = student.ppf(0.975, test.df) * abs(test.difference / test.t) if test.t else float("nan")
        parts.append(f"{what} {test.difference:+.{digits}f} ± {half:.{digits}f} (p = {test.p:.2f})")
    return [f"- {name}, test, {len(seeds)} seeds: {'; '.join(parts)}."]
