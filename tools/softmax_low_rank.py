"""The part of the page on the expected softmax that concerns low-rank noise; used by `softmax_page`."""

# ruff: noqa: E501

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dubito.integrals.factors import PRODUCT_RANK

Line = dict[str, Any]
MODERATE = 4096  # draws
WAYS = ("everything", "factors, product rule", "factors, Sobol")


def low_rank(lines: Sequence[Line]) -> Iterator[str]:
    """Points over everything against rules over the factors, at equal cost, and what `auto` does."""
    if not lines:
        return
    yield "## Low-rank heads: where should the points go?"
    yield ""
    yield (
        "Given its R factors the classes are independent again. So: points over the factors around the exact integral, or "
        "quasi-random points over everything? Root mean square error of log p at equal cost of the processor, forward and "
        "backward; the cost is that of the largest set of points over everything. Reference: the first way with many points."
    )
    yield ""
    yield "| factors | classes | tau | cost, ms | everything | factors, product rule | factors, Sobol | reference's own error |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    automatic = [x for x in lines if x["way"] == "auto"]
    lines = [x for x in lines if x["way"] != "auto"]
    won = dict.fromkeys(WAYS, 0)
    places = sorted({(x["rank"], x["classes"], x["tau"]) for x in lines})
    for place in places:
        here = [x for x in lines if (x["rank"], x["classes"], x["tau"]) == place]
        cost = sorted(x["ms"] for x in here if x["way"] == "everything")[-1]
        errors = {way: _at_cost([x for x in here if x["way"] == way], cost) for way in WAYS}
        best = min((w for w in WAYS if errors[w] is not None), key=lambda w: errors[w] or math.inf)
        won[best] += 1
        cells = " | ".join(
            "" if e is None else f"**{e:.1e}**" if w == best else f"{e:.1e}" for w, e in errors.items()
        )
        yield f"| {place[0]} | {place[1]} | {place[2]:g} | {cost:.0f} | {cells} | {here[0]['reference_error']:.0e} |"
    yield ""
    counts = ", ".join(f"{way} {count}" for way, count in won.items())
    yield (
        f"Best in so many of {len(places)} places: {counts}. An empty place: the smallest rule costs more than that. `auto` takes the product "
        f"rule up to {PRODUCT_RANK} factors and points over everything beyond them: there, at the cost of {MODERATE:,} draws, these win in "
        f"{_won_by_everything(lines)}. "
        'Where four times as much may be spent and the temperature is low, `method="quadrature"` is the better: Sobol points over the factors. With three factors and no tolerance asked for, it spends about '
        "what `samples` draws would cost; with one, it raises the order until the tolerance is met. The estimate of the error is the change "
        "from the smaller rule, or the standard error over replicates, and `auto` says so where the tolerance is not met. In a batch of few "
        "rows the search for the place of the points weighs heavily against the factors."
    )
    yield ""
    yield from _automatic(automatic)
    first = lines[0]
    yield ""
    commands = ", ".join(
        f"`{command}`" for command in dict.fromkeys(x["command"] for x in lines if "command" in x)
    )
    yield f"{first['hardware']}, torch {first['torch']}; rows of the batch: {sorted({x['rows'] for x in lines})}. Again: {commands}."


def _won_by_everything(lines: Sequence[Line]) -> str:
    """In how many places with too many factors for a product rule a moderate number of draws beats rules of its cost."""
    lines = [x for x in lines if x["rank"] > PRODUCT_RANK]
    places = {(x["rank"], x["classes"], x["tau"]) for x in lines}
    won = 0
    for place in places:
        here = [x for x in lines if (x["rank"], x["classes"], x["tau"]) == place]
        (drawn,) = (x for x in here if x["way"] == "everything" and x["points"] == MODERATE)
        rules = [x["error"] for x in here if x["way"] != "everything" and x["ms"] <= drawn["ms"]]
        won += drawn["error"] < min(rules, default=math.inf)
    return f"{won} of {len(places)} places"


def _automatic(lines: Sequence[Line]) -> Iterator[str]:
    """What "auto" said of its error, and what it was."""
    if not lines:
        return
    yield "What `auto` says of its error (default tolerance 1e-3; root mean squares over the rows), and what it is:"
    yield ""
    yield "| factors | classes | tau | method | points | estimate | error | worst row | within the estimate | within three | tolerance met, it says |"
    yield "|---:|---:|---:|---|---:|---:|---:|---:|---:|---:|---|"
    for x in sorted(lines, key=lambda x: (x["rank"], x["classes"], x["tau"])):
        yield (
            f"| {x['rank']} | {x['classes']} | {x['tau']:g} | {x['method']} | {x['points']} | {x['estimate']:.1e} | {x['error']:.1e} "
            f"| {x['worst']:.1e} | {x['within_estimate']:.0%} | {x['within_three']:.0%} | {'yes' if x['reached'] else 'no'} |"
        )
    yield ""


def _at_cost(lines: Sequence[Line], cost: float) -> float | None:
    """The error at a cost, between the sizes measured on a doubly logarithmic line; beyond the largest, its own."""
    points = sorted((x["ms"], x["error"]) for x in lines)
    if not points or points[0][0] > cost:
        return None
    ms, error = np.log(np.array(points)).T
    return float(np.exp(np.interp(math.log(cost), ms, error)))
