"""What the places say together, in words and as data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from results_cells import interval_text
from results_groups import Place, Standing, all_places
from results_words import DATA, NOISES, method_words

from dubito.noise import class_dependent
from dubito.papers.configs import Config
from dubito.papers.results import Result
from dubito.papers.statistics import FEWEST_SEEDS, Summary, student_interval

CLOSE = 0.5  # points below the first that nobody would mind


def short(found: Sequence[Place]) -> Iterator[str]:
    """A sentence for each kind of noise on each data set."""
    yield from ("## In short", "")
    for (data, noise), group in kinds(found).items():
        one = len(group) == 1
        what = group[0].words if one else f"{NOISES.get(noise, noise)}, {len(group)} {_unit(group)}s"
        doubtful = "" if all(p.judged for p in group) else " Too few seeds to be sure."
        yield f"- {DATA.get(data, data)}, {what}: {_firsts(group)}; {_over_plain(group)}.{_level(group)}{doubtful}"
    yield from ("", _choice(found))


def kinds(found: Iterable[Place]) -> dict[tuple[str, str], list[Place]]:
    """Places by data and kind of noise."""
    grouped: dict[tuple[str, str], list[Place]] = {}
    for place in found:
        grouped.setdefault((place.config.data, place.config.noise), []).append(place)
    return grouped


def over_plain(mine: Standing, place: Place) -> Summary | None:
    """Points of a method over plain training, paired by seed."""
    plain = place.plain
    if plain is None or mine is plain:
        return None
    both = sorted(mine.summary.values.keys() & plain.summary.values.keys())
    return Summary({s: mine.summary.values[s] - plain.summary.values[s] for s in both}) if both else None


def joined(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _unit(group: Sequence[Place]) -> str:
    return "rate" if all(p.config.rate for p in group) else "place"


def _where(places: Sequence[Place], group: Sequence[Place]) -> str:
    """ "at 20 and 40 %", or how many where they have no rates."""
    if len(group) == 1:
        return ""
    if len(places) == len(group):
        return f" at all {len(group)}"
    if _unit(group) == "rate":
        return f" at {joined([f'{100 * p.config.rate:.0f}' for p in places])} %"
    return f" at {len(places)}"


def _held(group: Sequence[Place], standing: str) -> list[tuple[str, list[Place]]]:
    """Methods with that standing, and where, the most places first."""
    found: dict[str, list[Place]] = {}
    for place in group:
        for mine in place.methods:
            if mine.standing == standing:
                found.setdefault(mine.name, []).append(place)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _firsts(group: Sequence[Place]) -> str:
    parts = [f"{method_words(n)} is first{_where(p, group)}" for n, p in _held(group, "first")]
    return ", ".join(parts)


def _level(group: Sequence[Place]) -> str:
    parts = [f"{method_words(n)}{_where(p, group)}" for n, p in _held(group, "level")]
    return f" Level with the first: {joined(parts)}." if parts else ""


def _over_plain(group: Sequence[Place]) -> str:
    gains = [over_plain(place.best, place) for place in group]
    known = [g for g in gains if g is not None]
    if not known:
        return "that is plain training"
    if len(group) == 1:
        bounds = f" ({interval_text(known[0], 2)})" if known[0].seeds > 1 else ""
        return f"{known[0].mean:+.2f} points over plain training{bounds}"
    low, high = min(g.mean for g in known), max(g.mean for g in known)
    return f"the first is {low:+.1f} to {high:+.1f} points over plain training"


def _choice(found: Sequence[Place]) -> str:
    """How well the highest accuracy on noisy validation labels picks a method."""
    picked = [(p, p.picked) for p in found]
    lost = {
        crowd: [p.best.summary.mean - m.summary.mean for p, m in picked if m is not None and p.crowd is crowd]
        for crowd in (False, True)
    }
    words = {False: "with one label per item", True: "with annotators"}
    parts = [
        f"{words[crowd]} at {sum(v <= CLOSE for v in values)} of {len(values)} places "
        f"(mean loss {math.fsum(values) / len(values):.2f} points, at most {max(values):.2f})"
        for crowd, values in lost.items() if values
    ]  # fmt: skip
    if not parts:
        return "Accuracy on noisy validation labels was not recorded for all methods of any place."
    return (
        "Choosing the method by its accuracy on noisy validation labels picks the first, or one within "
        f"{CLOSE:g} points of it, {' and '.join(parts)}."
    )


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
