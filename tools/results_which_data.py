"""Which method for which noise, as data: all places, and the small table that lies in the package."""

from __future__ import annotations

import json
from typing import Any

from results_groups import Place, Standing
from results_which import all_places

from dubito.noise import class_dependent
from dubito.papers.configs import Config
from dubito.papers.results import Result
from dubito.papers.statistics import FEWEST_SEEDS, student_interval


def which_method_data(results: dict[str, list[Result]]) -> str:
    """The same as data."""
    return (
        json.dumps([_data(p) for p in all_places(results)], indent=1, ensure_ascii=False, sort_keys=True)
        + "\n"
    )


def which_method_table(results: dict[str, list[Result]]) -> str:
    """The small table of the package: places with one label per item and enough seeds, a line for each."""
    rows = []
    for place in (p for p in all_places(results) if not p.crowd):
        kept = [_one(m) for m in place.methods if m.summary.seeds >= FEWEST_SEEDS]
        if kept:
            config = place.config
            where = {
                "data": config.data,
                "labels": config.labels,
                "noise": config.noise,
                "rate": _rate(config),
            }
            rows.append(json.dumps({**where, "network": config.network, "methods": kept}, sort_keys=True))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _rate(config: Config) -> float:
    """The rate that the config names; of noise that depends on the class the mean share of wrong labels."""
    if config.noise != "class_dependent":
        return config.rate
    T = class_dependent(config.matrix)
    return round(1 - float(T.diagonal().mean()), 4)


def _data(place: Place) -> dict[str, Any]:
    config, picked = place.config, place.picked
    names = (
        "data",
        "labels",
        "noise",
        "rate",
        "matrix",
        "annotators",
        "skill",
        "per_item",
        "network",
        "epochs",
        "steps",
    )
    return {
        **{name: getattr(config, name) for name in names},
        "picked_by_noisy_validation": None if picked is None else picked.name,
        "methods": [_one(m) for m in place.methods],
    }


def _one(mine: Standing) -> dict[str, Any]:
    bounds, spread = student_interval(mine.summary), mine.summary.spread
    return {
        "method": mine.name,
        "params": dict(mine.config.params),
        "accuracy": round(mine.summary.mean, 4),
        "spread": None if spread is None else round(spread, 4),
        "interval": None if bounds is None else [round(b, 4) for b in bounds],
        "seeds": mine.summary.seeds,
        "standing": mine.standing,
    }
