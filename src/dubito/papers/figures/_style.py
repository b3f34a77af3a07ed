"""How pictures look and are saved: sheets of axes, one look per curve, bands, captions, SVG and PNG.

Curves differ in colour, dash and marker at once, so that they stay apart in grey and for colour-blind readers;
the colours are those of Okabe and Ito. Sheets are made without pyplot: nothing global is touched.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..configs import Config
from ..statistics import Summary
from ..tables import DATASETS


class Look(NamedTuple):
    """Colour, dash and marker of one curve."""

    colour: str
    dash: Any
    marker: str

    def line(self, **more: Any) -> dict[str, Any]:
        """Keywords of `Axes.plot`."""
        return {"color": self.colour, "linestyle": self.dash, "marker": self.marker, **_LINE, **more}


class Drawing(NamedTuple):
    """A matplotlib figure and what it shows."""

    figure: Any
    caption: str


_LINE = {"linewidth": 1.6, "markersize": 4.5, "markeredgewidth": 1.0}
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#B8A800", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
LOOKS = (
    Look(BLUE, "-", "o"),
    Look(RED, (0, (5, 1.5)), "s"),
    Look(GREEN, (0, (1.2, 1.2)), "^"),
    Look(PINK, (0, (5, 1.5, 1.2, 1.5)), "D"),
    Look(ORANGE, (0, (8, 2)), "v"),
    Look(SKY, (0, (3, 1, 1, 1, 1, 1)), "P"),
    Look(BLACK, (0, (2, 2)), "X"),
    Look(YELLOW, (0, (4, 3)), "<"),
    Look("#777777", (0, (1, 2.5)), ">"),
)
# A method keeps its look from picture to picture.
METHOD_LOOKS: dict[str, Look] = {
    "ce": Look(BLACK, (0, (2, 2)), "X"),
    "ln": LOOKS[0],
    "gce": LOOKS[1],
    "bi-tempered": LOOKS[2],
    "nan": LOOKS[3],
    "forward": LOOKS[4],
    "forward:transition=estimated": LOOKS[4],
    "het": LOOKS[5],
    "het-tau": LOOKS[7],
    "het-full": LOOKS[8],
    "smooth": LOOKS[0],
    "backward": LOOKS[1],
    "trace": LOOKS[0],
    "mbem": LOOKS[1],
    "gem": LOOKS[2],
    "oracle": Look("#777777", (0, (1, 2.5)), ">"),
    "no-trace": LOOKS[3],
    "single-cm": LOOKS[4],
    "wdn": LOOKS[5],
    "bootstrap": LOOKS[7],
}
NAMES: dict[str, str] = {
    "ce": "plain training",
    "ln": "LN",
    "gce": "GCE",
    "bi-tempered": "bi-tempered",
    "nan": "NAN",
    "forward:transition=estimated": "forward, estimated",
    "het": "Het",
    "het-tau": "Het-τ",
    "het-full": "Het-τ full",
    "smooth": "smoothing",
    "forward": "forward",
    "backward": "backward",
    "trace": "trace",
    "no-trace": "no trace",
    "gem": "GEM",
    "mbem": "MBEM",
    "single-cm": "single matrix",
    "wdn": "doctor net",
    "bootstrap": "bootstrap",
}


def look(name: str, place: int = 0) -> Look:
    """The look of a method, or the one at a place in the list."""
    return METHOD_LOOKS.get(name) or LOOKS[place % len(LOOKS)]


def title_of(method: str) -> str:
    """A method's name in a legend."""
    return NAMES.get(method, method)


def data_title(data: str) -> str:
    """ "CIFAR-10" for "cifar10"."""
    more = {"camvid": "CamVid", "labelme": "LabelMe", "shapes": "drawn shapes"}
    return {**{ours: theirs for theirs, ours in DATASETS.items()}, **more}.get(data, data)


def noise_title(config: Config) -> str:
    """ "asymmetric noise, 20%", or the name of the label set."""
    kind = {"resample": "symmetric"}.get(config.noise, config.noise.replace("_", " "))
    return config.labels or f"{kind} noise, {config.rate:.0%}"


def sheet(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """(figure, axes[rows, columns]) in inches, drawn by Agg without pyplot."""
    figure = canvas(width, height)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        plain(ax)
    return figure, axes


def canvas(width: float, height: float) -> Any:
    """An empty figure in inches, for panels of different sizes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(ax: Any) -> Any:
    """The look of a panel: small numbers, no frame above and at the right."""
    ax.tick_params(labelsize=8)
    ax.xaxis.label.set_fontsize(9)
    ax.yaxis.label.set_fontsize(9)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def headings(axes: Any, titles: Sequence[str]) -> None:
    """A small title per panel."""
    for ax, title in zip(axes.flat, titles):
        ax.set_title(title, fontsize=9)


def legend(target: Any, **options: Any) -> Any:
    """A legend without a frame, with handles long enough to show the dashes."""
    shape = {"fontsize": 8, "frameon": False, "handlelength": 3.2}
    return target.legend(**{**shape, **options})


def shared_legend(figure: Any, ax: Any, columns: int) -> None:
    """One legend for all panels, above them."""
    handles, labels = ax.get_legend_handles_labels()
    legend(figure, handles=handles, labels=labels, loc="outside upper center", ncols=columns)


def curve(
    ax: Any, points: Mapping[float, Summary], how: Look, label: str, *, interval: bool = False, **more: Any
) -> None:
    """Means over seeds joined by a line, with a band of one standard deviation where there are two seeds.

    Arguments:
        interval: the band is the bootstrapped 95 % interval of the mean instead.
    """
    xs = sorted(points)
    ax.plot(xs, [points[x].mean for x in xs], label=label, **how.line(**more))
    if any(points[x].spread for x in xs):
        edges = [band(points[x], interval) for x in xs]
        low, high = zip(*edges)
        ax.fill_between(xs, low, high, color=how.colour, alpha=0.15, linewidth=0)


def band(summary: Summary, interval: bool) -> tuple[float, float]:
    """Lower and upper edge: mean -+ standard deviation, or the bootstrapped 95 % interval of the mean."""
    if interval:
        found = summary.interval()
        return found.low, found.high
    spread = summary.spread or 0.0
    return summary.mean - spread, summary.mean + spread


def seeds_text(summaries: Sequence[Summary], what: str = "standard deviation") -> str:
    """ "mean and standard deviation of 3 seeds", or of a range of numbers of seeds."""
    counts = sorted({s.seeds for s in summaries})
    if counts == [1]:
        return "one seed"
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean and {what} of {number} seeds"


def save(drawing: Drawing, stem: Path | str) -> tuple[Path, Path]:
    """Write STEM.svg and STEM.png, the caption below the picture and in the files; the same bytes every "
    "time."""
    import matplotlib

    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    figure, caption = drawing
    width = int(figure.get_figwidth() * 17)
    figure.supxlabel("\n".join(textwrap.wrap(caption, width)), fontsize=7, color="#444444", x=0.01, ha="left")
    svg, png = (stem.with_name(stem.name + end) for end in (".svg", ".png"))
    # Restored on leaving: text stays text in the SVG, and its names do not change from run to run.
    with matplotlib.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "none"}):
        figure.savefig(svg, metadata={"Date": None, "Creator": "dubito", "Description": caption})
    figure.savefig(png, metadata={"Software": None, "Description": caption})
    return svg, png
