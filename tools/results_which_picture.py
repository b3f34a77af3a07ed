"""Which method for which noise as a picture: a method a row, a place a column, points over plain training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from results_groups import Place, Standing
from results_which_words import over_plain
from results_words import DATA, NOISES, method_words

from dubito.papers.figures._style import Drawing, canvas, plain

# Whether annotators gave the labels -> name of the file, what it shows.
FILES = {
    False: ("gain-one-label", "Points over plain training by method and noise, with one label per item"),
    True: ("gain-crowds", "Points over plain training by method and annotators"),
}
STRONGEST = 20.0  # points from which colours do not grow any more


def picture(found: Sequence[Place], crowd: bool) -> Drawing | None:
    """The picture of the places with or without annotators; None where there are none."""
    shown = sorted((p for p in found if p.crowd is crowd and p.plain is not None), key=_order)
    names = _rows(shown)
    if not names:
        return None
    figure = canvas(2.2 + 0.62 * len(shown), 2.3 + 0.27 * len(names))
    ax = plain(figure.subplots())
    ax.spines[:].set_visible(False)
    ax.set(xlim=(-0.5, len(shown) - 0.5), ylim=(len(names) - 0.5, -0.5))
    ax.tick_params(length=0)
    ax.set_yticks(range(len(names)), [method_words(n) for n in names])
    ax.xaxis.tick_top()
    ax.set_xticks(range(len(shown)), [_column(p) for p in shown], rotation=50, ha="left", fontsize=7.5)
    for x, place in enumerate(shown):
        for mine in place.methods:
            gain = over_plain(mine, place)
            if gain is not None:
                _cell(ax, x, names.index(mine.name), gain.mean, mine)
        if x and _group(place) != _group(shown[x - 1]):
            ax.axvline(x - 0.5, color="#555555", linewidth=0.8)
    return Drawing(
        figure,
        "Points of accuracy on clean test labels over plain training, paired by seed. Bold and framed: the first, "
        "or level with it. *: some method has fewer than three seeds. Empty: not run.",
    )


def _order(place: Place) -> tuple[Any, ...]:
    config = place.config
    group = (_rank(DATA, config.data), _rank(NOISES, config.noise))
    return *group, config.per_item, config.skill, config.rate, config.matrix, config.labels


def _rank(names: dict[str, str], name: str) -> int:
    return list(names).index(name) if name in names else len(names)


def _group(place: Place) -> tuple[str, str]:
    return place.config.data, place.config.noise


def _rows(shown: Sequence[Place]) -> list[str]:
    """Methods by their mean gain, after those of many places the ones of less than half as many."""
    gains: dict[str, list[float]] = {}
    for place in shown:
        for mine in place.methods:
            gain = over_plain(mine, place)
            if gain is not None:
                gains.setdefault(mine.name, []).append(gain.mean)
    most = max(map(len, gains.values()), default=0)
    return sorted(gains, key=lambda n: (2 * len(gains[n]) < most, -sum(gains[n]) / len(gains[n]), n))


def _column(place: Place) -> str:
    config = place.config
    kind = NOISES.get(config.noise, config.noise)
    if config.noise == "flip_to_other":
        kind = f"{kind} {100 * config.rate:.0f} %"
    elif config.annotators:
        each = "all labels" if not config.per_item else f"{config.per_item} label"
        kind = f"{kind} {config.skill:g}, {each}"
    elif config.rate:
        kind = f"{kind} {100 * config.rate:.0f} %"
    elif config.matrix or config.labels not in ("", "crowd"):
        kind = f"{kind}, {config.matrix or config.labels}"
    return f"{DATA.get(config.data, config.data)}: {kind}" + ("" if place.judged else " *")


def _cell(ax: Any, x: int, y: int, gain: float, mine: Standing) -> None:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    best = mine.standing in ("first", "level")
    share = 0.5 + 0.5 * max(-1.0, min(1.0, gain / STRONGEST))
    colour = colormaps["RdBu"](0.12 + 0.76 * share)
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=0.8))
    if best:
        ax.add_patch(Rectangle((x - 0.45, y - 0.43), 0.9, 0.86, fill=False, edgecolor="black", linewidth=1.0))
    dark = abs(share - 0.5) > 0.36
    ax.text(
        x, y, f"{round(gain, 1) + 0.0:+.1f}", ha="center", va="center", fontsize=7,
        color="white" if dark else "black", fontweight="bold" if best else "normal",
    )  # fmt: skip
