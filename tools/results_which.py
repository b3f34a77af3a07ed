"""Which method for which noise: a page and a data file computed from the result lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from results_cells import interval_text, wanted
from results_groups import Place, Standing, all_places
from results_which_picture import FILES
from results_which_words import joined, kinds, over_plain, short
from results_words import DATA, NOISES, STANDS_IN, arithmetic, formats, method_words, parameters

from dubito.papers import PAPERS, items
from dubito.papers.results import Result
from dubito.papers.tables import method_label


def which_method(results: dict[str, list[Result]]) -> str:
    """The page."""
    found = all_places(results)
    lines = [
        "# Which method for which noise",
        "",
        "Written by `python tools/results_pages.py` from `results/`; do not edit.",
    ]
    if not found:
        return "\n".join([*lines, "", "No results yet."]) + "\n"
    lines += [
        "",
        *short(found),
        *_pictures(found),
        "",
        *_meaning(results),
        "",
        *_decision(found),
        "",
        *_unknown_rate(found),
        "",
        "## Place by place",
    ]
    for place in found:
        lines += ["", *_place(place)]
    lines += ["", *_missing(results)]
    return "\n".join(lines) + "\n"


def _meaning(results: dict[str, list[Result]]) -> Iterator[str]:
    """What the numbers and words of the page mean."""
    yield from ("## How to read this page", "")
    yield (
        "Accuracy on clean test labels in per cent, with Student's 95 % interval of the mean over seeds. Every "
        "method has the hyper-parameters that its paper chose for this data and this noise, or for other data, "
        "where a place says so, or, where the paper names none, the middle of its grid: the ranking presupposes a "
        "search on noisy validation data."
    )
    yield from ("", *_mixed(results), "")
    yield (
        "*First*: the highest mean. *Level*: within 2 points of it and not significantly below (paired t-test over "
        "seeds, p < .05). *In doubt*: more than 2 points below, but the spread over seeds is too wide to be sure."
    )


def _mixed(results: dict[str, list[Result]]) -> Iterator[str]:
    """Where methods of one table were computed in different arithmetic."""
    tables: dict[tuple[str, str], list[Result]] = {}
    for r in (r for runs in results.values() for r in runs if r.config.size == "paper"):
        tables.setdefault((r.config.paper, r.config.item), []).append(r)
    for (paper, item), runs in tables.items():
        if len(formats(runs)) > 1:
            link = "[what that changes](results/precision.md)"
            yield f"Convolutions of {paper}.{item} are in {arithmetic(runs)} ({link})."


def _title(place: Place) -> str:
    config = place.config
    length = f"{config.epochs} epochs" if config.epochs else f"{config.steps} steps"
    length += f" at most, ended after {config.patience} without a gain" * bool(config.patience)
    return f"{DATA.get(config.data, config.data)}, {config.network}, {length}, {place.words}"


def _pictures(found: Sequence[Place]) -> Iterator[str]:
    for crowd, (file, words) in FILES.items():
        if any(p.crowd is crowd and p.plain is not None for p in found):
            yield from ("", f"![{words}](results/{file}.svg)")


def _decision(found: Sequence[Place]) -> Iterator[str]:
    yield from ("## Decision table", "")
    yield "| data | noise | first | level | in doubt | gain over plain training | noisy validation would pick |"
    yield "|---|---|---|---|---|---:|---|"
    for place in found:
        level, doubt = (_names(place, s) for s in ("level", "in doubt"))
        first = _with_interval(place.best) + ("" if place.judged else " (too few seeds)")
        star = " \\*" if list(_apart(place)) else ""
        yield (
            f"| {DATA.get(place.config.data, place.config.data)} | {place.words}{star} | {first} | {level} "
            f"| {doubt} | {_gain(place)} | {_picked(place)} |"
        )
    if any(list(_apart(p)) for p in found):
        yield from (
            "",
            "\\* Not the paper's length of training, or data that the paper does not have: see the place.",
        )


def _apart(place: Place) -> Iterator[str]:
    """In what the runs of a place are not their paper's."""
    config = place.best.config
    theirs = [c for c in wanted(config.paper, config.item, "paper", config.data) if c.method == config.method]
    for unit in ("epochs", "steps"):
        ours, printed = getattr(config, unit), getattr(theirs[0], unit) if theirs else 0
        if printed and ours != printed:
            yield f"{ours} of the paper's {printed} {unit}"
    theirs_too = {c.data for i in items(config.paper).values() for c in wanted(config.paper, i.id)}
    if f"{config.paper}.{config.item}" in STANDS_IN or config.data not in theirs_too:
        yield "the paper has no results on this data, the hyper-parameters are those of its other data"


def _names(place: Place, standing: str) -> str:
    return ", ".join(method_words(m.name) for m in place.methods if m.standing == standing) or "-"


def _with_interval(mine: Standing) -> str:
    return f"{method_words(mine.name)} {mine.summary.mean:.2f} ({interval_text(mine.summary, 2, share=True)})"


def _gain(place: Place) -> str:
    """Mean and interval of the first over plain training, paired by seed."""
    gain = over_plain(place.best, place)
    if gain is None:
        return "-"
    return f"{gain.mean:+.2f} ({interval_text(gain, 2)})"


def _picked(place: Place) -> str:
    picked = place.picked
    if picked is None:
        return "-"
    short = place.best.summary.mean - picked.summary.mean
    return (
        f"{method_words(picked.name)} ({-short:+.2f})"
        if short
        else f"{method_words(picked.name)} (the first)"
    )


def _unknown_rate(found: Sequence[Place]) -> Iterator[str]:
    """How far below the best a method is over all rates of one kind of noise, with one label per item."""
    yield from ("## If only the kind of noise is known", "")
    yield "Points below the best of the place, over the rates that were run; sorted by the worst. The"
    yield "hyper-parameters are still those chosen for each rate."
    grouped = kinds(p for p in found if p.config.noise != "none" and not p.crowd)
    grouped = {k: v for k, v in grouped.items() if len(v) > 1}
    for data, of_data in _by_data(grouped).items():
        if len(of_data) > 1:
            grouped[data, "any kind"] = [p for group in of_data for p in group]
    for (data, noise), group in grouped.items():
        yield from ("", f"### {DATA.get(data, data)}, {NOISES.get(noise, noise)}", "")
        yield from ("| method | mean | worst | where | places |", "|---|---:|---:|---|---:|")
        for name, below in _shortfalls(group):
            worst, where = max((v, w) for w, v in below.items())
            mean = math.fsum(below.values()) / len(below)
            yield f"| {method_words(name)} | {mean:.2f} | {worst:.2f} | {where} | {len(below)} of {len(group)} |"


def _by_data(groups: dict[tuple[str, str], list[Place]]) -> dict[str, list[list[Place]]]:
    found: dict[str, list[list[Place]]] = {}
    for (data, _), group in groups.items():
        found.setdefault(data, []).append(group)
    return found


def _shortfalls(group: Sequence[Place]) -> list[tuple[str, dict[str, float]]]:
    found: dict[str, dict[str, float]] = {}
    for place in group:
        for mine in place.methods:
            found.setdefault(mine.name, {})[place.words] = place.best.summary.mean - mine.summary.mean
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), max(pair[1].values()), pair[0]))


def _place(place: Place) -> Iterator[str]:
    best, plain = place.best, place.plain
    yield f"### {_title(place)}"
    yield ""
    words = f"{method_words(best.name)} is first of {len(place.methods)} methods at {best.summary.mean:.2f}"
    words += f"; {_level(place)}"
    if plain is not None and plain is not best:
        words += f". Plain training reaches {plain.summary.mean:.2f}"
    apart = "; ".join(_apart(place))
    yield f"{words}." + (f" Not as in the paper: {apart}." if apart else "")
    yield from ("", "| method | accuracy | interval | lowest seed | seeds | standing | parameters |")
    yield "|---|---:|---:|---:|---:|---|---|"
    for m in place.methods:
        spread = "" if m.summary.spread is None else f" ± {m.summary.spread:.2f}"
        lowest = min(m.summary.values.values())
        yield (
            f"| {method_words(m.name)} | {m.summary.mean:.2f}{spread} | {interval_text(m.summary, 2, share=True)} "
            f"| {lowest:.2f} | {m.summary.seeds} | {m.standing} | {parameters(m.config.params)} |"
        )


def _level(place: Place) -> str:
    level = [m for m in place.methods if m.standing == "level"]
    if level:
        return f"{joined([method_words(m.name) for m in level])} {'is' if len(level) == 1 else 'are'} level with it"
    judged = all(m.standing != "not judged" for m in place.methods)
    return "no method is level with it" if judged else "which are level with it, so few seeds cannot tell"


def _missing(results: dict[str, list[Result]]) -> Iterator[str]:
    """What the papers have and the results do not."""
    done = [r.config for runs in results.values() for r in runs if r.config.size != "smoke"]
    configs = [c for p in PAPERS for i in items(p).values() for c in wanted(p, i.id) if c.data != "gaussians"]
    methods = sorted({method_label(c) for c in configs} - {method_label(c) for c in done})
    yield from (
        "## Not covered yet",
        "",
        "The papers' protocols include these, and there are no results for them:",
        "",
    )
    yield f"- methods: {', '.join(method_words(m) for m in methods) or 'none'};"
    have = {(c.data, c.noise) for c in done}
    lacking: dict[str, set[str]] = {}
    for c in configs:
        if (c.data, c.noise) not in have:
            lacking.setdefault(c.noise, set()).add(DATA.get(c.data, c.data))
    for noise, data in sorted(lacking.items()):
        yield f"- {NOISES.get(noise, noise)} on {', '.join(sorted(data))};"
    few = [p for p in all_places(results) if not p.judged]
    yield f"- places where some method has fewer than three seeds: {len(few)}."
