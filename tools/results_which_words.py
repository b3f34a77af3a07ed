"""What the places say together: who is first under which noise, by how much, and whether noisy labels tell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from results_cells import interval_text
from results_groups import Place, Standing
from results_words import DATA, NOISES, method_words

from dubito.papers.statistics import Summary

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
