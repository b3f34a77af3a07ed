# ruff: noqa: E501
"""The part of docs/expected-softmax.md about errors against references, from results/benchmarks/softmax_accuracy_*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Line = dict[str, Any]


def accuracy(lines: Sequence[Line]) -> Iterator[str]:
    """Worst errors per device, type and number of classes, over all temperatures."""
    if not lines:
        return
    yield "## Accuracy"
    yield ""
    yield (
        "Worst errors over temperatures 0, 0.01, 0.05, 0.5, 1, 5 and 100, against value and gradients by an independently coded "
        "quadrature with many nodes (`benchmarks/softmax_references.py`), two classes by mpmath with 30 digits. A quarter of the "
        "rows each: ordinary; log-normal scales (deviation 1.7); scales from 0 to 50 in one row; means tens apart. The error of log p is "
        "absolute where p is above e^-100 = 4e-44, and of all rows relative to 1 + |log p|, which float32 holds to 6e-8. The error of the "
        "gradient in means, scales and temperature is relative to the largest entry of the row's gradient (of bfloat16: its own "
        "rounding). *Lies*: rows further off than the error that is reported with them. For all classes: the probability of the target, "
        "at the default tolerance of 1e-4."
    )
    yield ""
    yield "| device | inputs | shift of means | classes | rows | least log p | error of log p | relative | error of the gradient | lies | all classes: error of p | lies |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    groups: dict[tuple[str, str, float, int], list[Line]] = {}
    for line in lines:
        key = (line["device"], line["dtype"], line["shift"], line["classes"])
        groups.setdefault(key, []).append(line)
    for (device, dtype, shift, classes), some in groups.items():
        worst = {
            name: max(x[name] for x in some)
            for name in ("error_log_p", "error_log_p_relative", "error_gradient", "error_p_of_all")
        }
        lies = [
            sum(x[name] for x in some) for name in ("further_off_than_said", "further_off_than_said_of_all")
        ]
        yield (
            f"| {'CPU' if device == 'cpu' else 'H200'} | {dtype} | {shift:g} | {classes} | {sum(x['rows'] for x in some)} "
            f"| {min(x['least_log_p'] for x in some):,.0f} | {worst['error_log_p']:.0e} | {worst['error_log_p_relative']:.0e} | {worst['error_gradient']:.0e} | {lies[0]} "
            f"| {worst['error_p_of_all']:.0e} | {lies[1]} |"
        )
    yield ""
    for device in dict.fromkeys(line["device"] for line in lines):
        first = next(line for line in lines if line["device"] == device)
        yield f"{'CPU' if device == 'cpu' else first['hardware']}: torch {first['torch']}, {first['date']}: `{first['command']}`."
    yield ""
