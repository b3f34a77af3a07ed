"""Figure 5 of Tanno et al. 2019: validation accuracy over training, for weights of the trace and rounds of EM."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import DubitoError
from ..configs import Config
from ..results import Result
from ._points import runs_of
from ._style import LOOKS, Drawing, headings, legend, sheet, title_of


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """A panel for each method, a curve for each setting; one seed."""
    runs = runs_of(name, results, size, data)
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
