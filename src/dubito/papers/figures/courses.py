"""Accuracy over training: Englesson et al. 2023, figure 4, and Tanno et al. 2019, figure 5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DubitoError
from ..configs import Config
from ..results import Result
from ._points import recorded, runs_of
from ._style import LOOKS, Drawing, data_title, headings, legend, shared_legend, sheet, title_of

# Names under which runners keep accuracy on clean labels over the epochs.
CLEAN = ("validation_clean_accuracy", "test_accuracy", "validation_accuracy")


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The figure of that name from its result lines."""
    runs = runs_of(name, results, size, data)
    return _parts_apart(runs) if name.startswith("englesson2023") else _rounds(name, runs)


def _parts_apart(runs: Sequence[Result]) -> Drawing:
    """Columns: methods. Above: held-out accuracy. Below: on the training set, wrongly labelled ones dashed."""
    first = [r for r in runs if r.config.seed == min(x.config.seed for x in runs)]
    methods = list(dict.fromkeys(r.config.method for r in first))
    rates = sorted({r.config.rate for r in first})
    figure, axes = sheet(2, len(methods), 1.4 + 3.8 * len(methods), 6.0, sharey="row", sharex=True)
    kinds: set[str] = set()
    for column, method in enumerate(methods):
        for run in (r for r in first if r.config.method == method):
            how = LOOKS[rates.index(run.config.rate) % len(LOOKS)]
            label = f"{run.config.rate:.0%} noise"
            kind, xs, ys = held_out(run)
            kinds.add(kind)
            axes[0, column].plot(
                xs, _percent(ys), label=label, **how.line(marker=how.marker, markevery=_every(xs))
            )
            parts = recorded(run, "curves")
            if parts:
                _parts(axes[1, column], parts, how)
        axes[1, column].set_xlabel("epoch")
    axes[0, 0].set_ylabel("held-out accuracy, per cent")
    axes[1, 0].set_ylabel("training accuracy, per cent")
    headings(axes, [title_of(m) for m in methods])
    shared_legend(figure, axes[0, 0], len(rates))
    against = {"validation_accuracy": "noisy validation labels"}
    shown = " and ".join(sorted({against.get(kind, "clean labels") for kind in kinds}))
    caption = (
        f"{data_title(first[0].config.data)}, one seed. Above: held-out accuracy against {shown}. Below: training "
        "accuracy on given labels; solid: rightly labelled examples, dashed with hollow markers: wrongly "
        "labelled ones."
    )
    return Drawing(figure, caption)


def held_out(run: Result) -> tuple[str, list[float], list[float]]:
    """(name, epochs, accuracy): the first of `CLEAN` that the run kept."""
    for name in CLEAN:
        values = run.history.get(name)
        if values:
            every = run.history.get("every", 1)
            epochs = run.history.get("epoch") or [every * (i + 1) for i in range(len(values))]
            pairs = [(float(e), float(v)) for e, v in zip(epochs, values) if v is not None]
            return name, [e for e, _ in pairs], [v for _, v in pairs]
    return CLEAN[0], [], []


def _parts(ax: Any, parts: Mapping[str, Any], how: Any) -> None:
    for name, dash in (("train_clean", "-"), ("train_noisy", (0, (4, 2)))):
        pairs = [(e, v) for e, v in zip(parts["epoch"], parts.get(name, ())) if v is not None]
        xs = [e for e, _ in pairs]
        style = how.line(linestyle=dash, markevery=_every(xs))
        if name == "train_noisy":
            style["markerfacecolor"] = "white"
        ax.plot(xs, _percent([v for _, v in pairs]), **style)


def _percent(values: Sequence[float]) -> list[float]:
    return [100 * v for v in values]


def _every(xs: Sequence[float]) -> int:
    return max(1, len(xs) // 8)


def _rounds(name: str, runs: Sequence[Result]) -> Drawing:
    """A panel for each method, a curve for each setting; one seed."""
    first = [r for r in runs if r.config.seed == min(x.config.seed for x in runs)]
    kept = [r for r in first if r.history.get("validation_accuracy")]
    if not kept:
        raise DubitoError(
            "the runs of this figure kept no course", where=name, remedy="run with record=curves"
        )
    methods = list(dict.fromkeys(r.config.method for r in kept))
    figure, axes = sheet(1, len(methods), 1.0 + 3.2 * len(methods), 3.8, sharey=True)
    for ax, method in zip(axes.flat, methods):
        for place, run in enumerate(r for r in kept if r.config.method == method):
            xs, ys = course(run)
            how = LOOKS[place % len(LOOKS)]
            ax.plot(xs, ys, label=setting_of(run.config), **how.line(markevery=max(1, len(xs) // 8)))
        ax.set_xlabel("share of training, per cent")
        legend(ax, loc="lower right", fontsize=7)
    axes[0, 0].set_ylabel("accuracy, noisy validation labels, per cent")
    headings(axes, [title_of(m) for m in methods])
    config = kept[0].config
    length = f"{config.steps} steps" if config.steps else f"{config.epochs} epochs"
    group = f"{config.annotators} pairwise flippers of skill {config.skill:g}"
    return Drawing(figure, f"{group}, one label per image, {length}; one seed.")


def course(run: Result) -> tuple[list[float], list[float]]:
    """(share of training in per cent, accuracy in per cent) at the points that the run kept."""
    values = run.history["validation_accuracy"]
    pairs = [(100 * (i + 1) / len(values), 100 * v) for i, v in enumerate(values) if v is not None]
    return [x for x, _ in pairs], [y for _, y in pairs]


def setting_of(config: Config) -> str:
    """ "lambda = 0.01" or "20 rounds"."""
    rounds = config.param("rounds")
    return f"lambda = {config.param('trace'):g}" if rounds is None else f"{rounds} rounds"
