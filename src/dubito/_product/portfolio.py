"""Which methods race: chosen by the diagnosis, in the order of what was measured under noise of that kind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .._audit.result import FEW_WRONG
from ..papers.which import Evidence, evidence, table

BASELINE = "ce"
ALWAYS = ("gce:q=0.7", "ln", "ln:temperature=0.5,lam=1.0")  # robust losses that race on noisy labels
MORE = ("bi-tempered", "nan")  # those that join where they were first or level with the first
CLEAN = ("smooth:alpha=0.1", "gce:q=0.3", "ln:temperature=0.5,lam=1.0")

WORDS = {"resample": "symmetric", "flip_to_other": "symmetric", "pair_flip": "pairwise", "natural": "human"}


@dataclass(frozen=True)
class Diagnosis:
    """What the portfolio depends on."""

    kind: str
    rate: float
    transition: Tensor
    labels_per_item: float
    crowd: bool


def portfolio(d: Diagnosis) -> dict[str, dict[str, Any]]:
    """Method -> parameters, the baseline first, then as they stood in our experiments under the closest noise.

    Of methods within one standard error of the best the race takes the earliest here.

    Example:
        >>> import torch
        >>> list(portfolio(Diagnosis("pairwise", 0.3, torch.eye(3), 1.0, False)))[:2]
        ['ce', 'ln']
    """
    if d.crowd:
        names = [BASELINE, "trace:trace=0.01", "crossfit-em"]
        names += ["gem"] if d.labels_per_item > 1.5 else ["mbem"]
        return {name: {} for name in names}
    if d.rate < FEW_WRONG:  # nothing is told apart on clean labels: the simplest first
        return {name: {} for name in (BASELINE, *CLEAN)}
    found = closest(d)
    gaps = _gaps(found)
    names = [*ALWAYS, *_joining(found)]
    params: dict[str, dict[str, Any]] = {}
    if d.kind in ("pairwise", "class-dependent"):
        names.append("forward")
        params["forward"] = {"transition": d.transition}
    names.sort(key=lambda name: gaps.get(name.partition(":")[0], max(gaps.values(), default=0.0)))
    return {name: params.get(name, {}) for name in (BASELINE, *names)}


def closest(d: Diagnosis) -> tuple[Evidence, ...]:
    """What was measured of racing methods at the closest rates, under noise of that kind, or else of any kind."""
    near = _racing(evidence(d.kind, d.rate, within=1.0)) or _racing(e for e in table() if e.noise != "none")
    least = min((abs(e.rate - d.rate) for e in near), default=0.0)
    return tuple(e for e in near if abs(e.rate - d.rate) <= least + 1e-9)


def _racing(found: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """Without methods that never race: a place that has no others says nothing about the order."""
    families = {name.partition(":")[0] for name in (*ALWAYS, *MORE, "forward")}
    return tuple(e for e in found if e.method.partition(":")[0] in families)


def told(d: Diagnosis, names: list[str]) -> str:
    """One sentence on the evidence behind the order, empty where there is none."""
    if d.crowd or d.rate < FEW_WRONG:
        return ""
    families = {name.partition(":")[0] for name in names}
    gaps = {k: v for k, v in _gaps(closest(d)).items() if k in families}
    if not gaps:
        return ""
    places = sorted({_place(e) for e in closest(d)})
    ranked = sorted(gaps, key=lambda name: gaps[name])
    words = ", ".join(f"{name} {gaps[name]:.1f}" for name in ranked)
    return (
        "Their order, plain cross-entropy apart, is that of our own experiments with the closest noise "
        f"({'; '.join(places)}), in points of accuracy below the best there: {words}."
    )


def _place(e: Evidence) -> str:
    # How many labels people got wrong is not stated there.
    rate = "" if e.noise == "natural" else f" at {100 * e.rate:.0f} %"
    return f"{e.data}, {WORDS.get(e.noise, e.noise)} noise{rate}"


def _gaps(found: tuple[Evidence, ...]) -> dict[str, float]:
    """Mean distance to the first of the place, by family of methods."""
    gaps: dict[str, list[float]] = {}
    for e in found:
        gaps.setdefault(e.method.partition(":")[0], []).append(e.gap)
    return {name: sum(v) / len(v) for name, v in gaps.items()}


def _joining(found: tuple[Evidence, ...]) -> list[str]:
    """The best further method that was first or level, with the parameters it had there."""
    good = [e for e in found if e.method in MORE and e.standing in ("first", "level")]
    if not good:
        return []
    e = min(good, key=lambda e: e.gap)
    return [e.method + ":" + ",".join(f"{k}={v!r}" for k, v in e.params)]
