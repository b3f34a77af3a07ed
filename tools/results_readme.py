"""The one table for README.md."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal

from results_groups import Place, Standing, compared, places
from results_words import arithmetic, method_words

from dubito.papers.results import Result
from dubito.papers.tables import METRICS, paper_cell

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
COLUMNS = (("none", 0.0), ("resample", 0.4), ("resample", 0.8), ("asymmetric", 0.2), ("asymmetric", 0.4))
TITLES = {"none": "clean labels", "resample": "symmetric", "asymmetric": "asymmetric"}


def readme_table(results: dict[str, list[Result]]) -> str:
    """Accuracy on MNIST under five kinds of noise, the paper's in brackets."""
    runs = [r for r in results.get("englesson2023", []) if r.config.item == "table1-mnist"]
    runs = [r for r in runs if r.config.size == "paper" and compared(r)]
    found = {(p.config.noise, p.config.rate): p for p in places(runs)}
    shown = [found[c] for c in COLUMNS if c in found]
    if not shown:
        return "No results yet.\n"
    methods = _order(shown)
    lines = [
        "Accuracy on the clean MNIST test set after training on wrong labels, in per cent (in brackets: that of",
        "Englesson et al. 2023, table 1, rounded). Bold: the best of the column, and what is within 2",
        "points of it and not significantly below (paired t-test over seeds). Plain training first, then by the",
        "mean over the columns with noise.",
        "",
        "| method | " + " | ".join(_title(p) for p in shown) + " |",
        "|---|" + "---:|" * len(shown),
    ]
    for method in methods:
        lines.append(f"| {method_words(method)} | " + " | ".join(_cell(p, method) for p in shown) + " |")
    epochs = sorted({r.config.epochs for r in runs})  # of one table at one size: a single number
    device = ", ".join(sorted({r.hardware.partition(", ")[0] for r in runs if r.hardware}))
    dates = sorted({r.date[:10] for r in runs if r.date})
    seeds = sorted({m.summary.seeds for p in shown for m in p.methods})
    count = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    when = " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else ""
    lines += [
        "",
        f"Mean ± standard deviation of {count} seeds; LeNet-5, {epochs[0]} epochs; {device}; {when}. Convolutions",
        f"in {arithmetic(runs)} ([what that changes](precision.md)).",
        "Every cell with its interval and verdict: [results](englesson2023.md). Regenerate: `make results`.",
        *_people(results),
        "",
        _picture(results),
    ]
    return "\n".join(lines) + "\n"


def _order(shown: list[Place]) -> list[str]:
    """Plain training, then the other methods by their mean over the places with noise, best first."""
    noisy = [p for p in shown if p.config.noise != "none"] or shown
    means: dict[str, list[float]] = {m.name: [] for p in shown for m in p.methods}
    for place in noisy:
        for method in place.methods:
            means[method.name].append(method.summary.mean)
    return sorted(means, key=lambda name: (name != "ce", -sum(means[name]) / max(1, len(means[name]))))


def _people(results: dict[str, list[Result]]) -> Iterator[str]:
    """The same of labels that people gave, in a sentence."""
    runs = [r for r in results["englesson2023"] if (r.config.item, r.config.size) == ("table2", "paper")]
    for place in places(r for r in runs if (r.config.data, r.config.labels) == ("cifar10n", "worst")):
        seeds = min(m.summary.seeds for m in place.methods)
        listed = ", ".join(f"{method_words(m.name)} {_number(m)}" for m in reversed(place.methods))
        yield from (
            "",
            "Labels that people gave, CIFAR-10N's worst, two in five wrong (in brackets: as printed in table 2):",
            f"{listed}. WRN-28-2, {place.config.epochs} epochs, {seeds} seed{'s' if seeds > 1 else ''}.",
        )


def _number(mine: Standing) -> str:
    """ "74.3 (74.3)"."""
    printed = paper_cell("englesson2023.table2", mine.config, METRICS["test_accuracy"])
    return f"{mine.summary.mean:.1f}" + (f" ({_rounded(printed.value)})" if printed else "")


def _rounded(printed: float) -> str:
    """A decimal number as it is printed, halves away from zero."""
    return str(Decimal(str(printed)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def _picture(results: dict[str, list[Result]]) -> str:
    """Decision regions say more at a glance than curves; curves where there are none."""
    if any(r.config.item == "figure3" for r in results["englesson2023"]):
        return "\n".join(
            (
                "Moons, as in figure 3 of the same paper, and circles, a fifth of the labels wrong, trained here:",
                "plain training bends around single points, the logistic-normal likelihood (`ln`) leaves them",
                "unfitted.",
                "",
                "![Decision regions of plain training and of LN on two moons and two circles](two-moons.png)",
            )
        )
    return "![Accuracy against the rate of wrong labels, ours and the paper's](table1-mnist.png)"


def _title(place: Place) -> str:
    title = TITLES[place.config.noise]
    return title if place.config.noise == "none" else f"{title} {100 * place.config.rate:.0f} %"


def _cell(place: Place, method: str) -> str:
    found = [m for m in place.methods if m.name == method]
    if not found:
        return ""
    mine = found[0]
    spread = "" if mine.summary.spread is None else f" ± {mine.summary.spread:.1f}"
    text = f"{mine.summary.mean:.1f}{spread}"
    bold = f"**{text}**" if mine.standing in ("first", "level") else text
    printed = paper_cell("englesson2023.table1", mine.config, METRICS["test_accuracy"])
    return bold + (f" ({_rounded(printed.value)})" if printed else "")
