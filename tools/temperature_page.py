# ruff: noqa: E501
"""Write docs/temperature.md and its picture from the lines in results/temperature/, and from nothing else.

    python tools/temperature_page.py            write the page and the picture
    python tools/temperature_page.py --check    only say whether the page is up to date

No number on the page is typed by hand, and neither is its conclusion.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from temperature_curves import (
    Curves,
    Difference,
    difference,
    indistinguishable,
    picture,
    read_curves,
    unpooled,
)

from dubito.papers.figures import save
from dubito.papers.results import Result, read

ROOT = Path(__file__).resolve().parents[1]
PAGE, PICTURE = Path("docs/temperature.md"), Path("docs/pictures/temperature")
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
EXACT = 0


def name_of(samples: int) -> str:
    """The row of a table."""
    return "exact" if samples == EXACT else f"S = {samples:,}"


def page(results: Sequence[Result]) -> str:
    """The whole page."""
    found = {data: read_curves(results, data) for data in TITLES}
    found = {data: curves for data, curves in found.items() if curves.samples}
    return (
        "\n".join([*_opening(results), *_answer(found), *_figure(), *_tables(found), *_how(results, found)])
        + "\n"
    )


def _opening(results: Sequence[Result]) -> Iterator[str]:
    yield "# Does the best temperature survive exact integration?"
    yield ""
    yield "Written by `python tools/temperature_page.py` from `results/temperature/`; do not edit."
    yield ""
    yield (
        "A heteroscedastic classifier averages softmax(u / tau) over Gaussian logits u. Collier et al. (2020) sample "
        "the average and tune tau: they explain the best value by a trade between the bias of a high temperature and "
        "the variance of the gradients at a low one. With the integral computed exactly there is no variance. "
        f"{len(results)} runs of one small network tell what is left of the trade."
    )
    yield ""


def _answer(found: dict[str, Curves]) -> Iterator[str]:
    yield "## Answer"
    yield ""
    kept = [data for data, curves in found.items() if _survives(curves)]
    if len(kept) == len(found):
        yield (
            "**Yes.** With the exact integral the log-likelihood against temperature has the same hump, with its best "
            "temperature among those that cannot be told from the best ones of the sampled runs."
        )
    elif kept:
        yield f"**On {' and '.join(TITLES[d] for d in kept)} yes, elsewhere not.**"
    else:
        yield "**No.** With the exact integral the best temperature is another one, or there is no interior best."
    yield ""
    for data, curves in found.items():
        yield f"- **{TITLES[data]}.** {_sentence(curves)}"
    yield ""
    yield _meaning(found)
    yield ""


def _survives(curves: Curves) -> bool:
    """An interior optimum that beats both ends, and overlaps with that of every number of samples."""
    best = curves.best(EXACT)
    ends = [difference(curves, EXACT, best, EXACT, tau) for tau in (curves.taus[0], curves.taus[-1])]
    near = set(indistinguishable(curves, EXACT))
    others = [s for s in curves.samples if s != EXACT]
    return all(d.low > 0 for d in ends) and all(near & set(indistinguishable(curves, s)) for s in others)


def _sentence(curves: Curves) -> str:
    low, high, best = curves.taus[0], curves.taus[-1], curves.best(EXACT)
    near = indistinguishable(curves, EXACT)
    most = max(s for s in curves.samples if s != EXACT)
    text = (
        f"Exact: best at tau = {best:g} by validation log-likelihood ({near[0]:g} to {near[-1]:g} cannot be told "
        f"from it); with 1,000 samples {curves.best(most):g}, with one {curves.best(1):g}. "
        f"On the noisy test set the exact run at its best is "
        f"{difference(curves, EXACT, best, EXACT, 1.0)} above tau = 1, "
        f"{difference(curves, EXACT, best, EXACT, low)} above tau = {low:g} and "
        f"{difference(curves, EXACT, best, EXACT, high)} above tau = {high:g}. "
    )
    gain = difference(curves, EXACT, best, 1, curves.best(1))
    return text + f"At the best temperatures exact is {gain} above one sample."


def _meaning(found: dict[str, Curves]) -> str:
    """What the low temperatures say: is it the variance that hurts them?"""
    parts = []
    for data, curves in found.items():
        low = curves.taus[0]
        change = difference(curves, EXACT, low, 1, low)
        sampled = difference(curves, 1, curves.best(1), 1, low)
        exact = difference(curves, EXACT, curves.best(EXACT), EXACT, low)
        share = 1 - exact.mean / sampled.mean
        if change.low > 0:
            parts.append(
                f"on {TITLES[data]} removing the variance recovers {share:.0%} of what tau = {low:g} loses with "
                f"one sample ({change}), and the rest is lost without any variance ({exact})"
            )
        elif change.high < 0:
            parts.append(
                f"on {TITLES[data]} removing the variance makes tau = {low:g} worse than one sample does ({change})"
            )
        else:
            parts.append(
                f"on {TITLES[data]} removing it changes nothing that can be told at tau = {low:g} ({change}), "
                f"which stays {exact.mean:.4f} ({exact.low:.4f} to {exact.high:.4f}) below the best"
            )
    text = "; ".join(parts)
    return (
        f"The variance is real but it does not place the optimum: {text}. What is left of the hump with no variance "
        "at all comes from the model itself: a temperature is a part of the likelihood that is fitted, and looks like a "
        "regulariser. It has to be chosen, exact or not."
    )


def _figure() -> Iterator[str]:
    yield f"![Log-likelihood and accuracy against temperature](pictures/{PICTURE.name}.svg)"
    yield ""
    yield (
        "Mean over seeds. Intervals, here and above, are of 95 %: runs are paired by seed, and the variance left after "
        "that is pooled over the five ways of training at each temperature. Plain training is the dashed line."
    )
    yield ""


def _tables(found: dict[str, Curves]) -> Iterator[str]:
    yield "## Numbers"
    yield ""
    yield "| data | training | best tau (validation) | cannot be told from it | noisy log-likelihood | noisy accuracy | clean accuracy |"
    yield "|---|---|---:|---|---:|---:|---:|"
    for data, curves in found.items():
        for samples in curves.samples:
            best, near = curves.best(samples), indistinguishable(curves, samples)
            numbers = " | ".join(curves.spread(samples, best, metric) for metric in curves.metrics)
            yield (
                f"| {TITLES[data]} | {name_of(samples)} | {best:g} | {near[0]:g} to {near[-1]:g} | {numbers} |"
            )
        numbers = " | ".join(curves.plain(metric) for metric in curves.metrics)
        yield f"| {TITLES[data]} | plain training | | | {numbers} |"
    yield ""
    yield "Mean ± standard deviation over seeds, at each row's own best temperature."
    yield ""


def _how(results: Sequence[Result], found: dict[str, Curves]) -> Iterator[str]:
    config = next(r.config for r in results if r.config.method != "ce")
    epochs = sorted({(TITLES[r.config.data], r.config.epochs) for r in results})
    seeds = len({r.config.seed for r in results})
    worst = max(r.metrics["rule_error_most"] for r in results)
    mean = max(r.metrics["rule_error"] for r in results)
    yield "## How it was done"
    yield ""
    yield (
        f"LeNet-5 with a diagonal Gaussian head, {config.optimizer}, rate {config.lr:g}, batches of {config.batch}, "
        + ", ".join(f"{n} epochs on {data}" for data, n in epochs)
        + f", {seeds} seeds; the class-dependent noise, splits and 18 temperatures of the paper. Runs that differ in "
        "samples or temperature only share start, data, noise and order of examples. Every example has draws of its "
        "own. **All runs predict with the exact integral**, so that only training differs. Reduced against the "
        "paper: a smaller network, a fixed number of epochs in place of early stopping, 3 seeds in place of 25."
    )
    yield ""
    yield (
        'Exact training uses a rule with a fixed number of nodes (`method="fixed"`), because the steps of many runs '
        "are mapped and captured as one CUDA graph. Against the refined quadrature in float64, on test examples with "
        f"random labels after training: mean error of log p at most {mean:.1e} in any run, largest {worst:.1e}."
    )
    yield ""
    alone = [
        f"{TITLES[data]} {unpooled(c, EXACT, c.best(EXACT), c.taus[0])} and {unpooled(c, EXACT, c.best(EXACT), c.taus[-1])}"
        for data, c in found.items()
    ]
    yield (
        "Three seeds are few, and the pooling was chosen after seeing that. Without it, the exact run at its best minus "
        f"the two ends of the range: {'; '.join(alone)}."
    )
    yield ""
    first = results[0]
    yield (
        f"{first.hardware}; {sum(r.seconds for r in results) / 60:.0f} GPU minutes for {len(results)} runs; "
        f"{first.date[:10]}; commit {first.commit[:10]}. Again: "
        "`python tools/temperature_study.py --out results/temperature/temperature.jsonl`, or one data set with "
        "`dubito paper run temperature.mnist --streams`."
    )


def main() -> None:
    """Write, or only compare."""
    results = read(ROOT / "results/temperature")
    text = page(results)
    if "--check" in sys.argv:
        if (ROOT / PAGE).read_text(encoding="utf-8") != text:
            raise SystemExit(f"{PAGE} is not up to date: python tools/temperature_page.py")
        return
    (ROOT / PAGE).write_text(text, encoding="utf-8")
    save(picture({data: read_curves(results, data) for data in TITLES}, TITLES, name_of), ROOT / PICTURE)


__all__ = ["Difference", "page"]

if __name__ == "__main__":
    main()
