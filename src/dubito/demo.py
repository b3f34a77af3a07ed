"""The demo: digits with class-dependent label noise, cross-entropy beside five robust methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from . import metrics, noise, optim
from ._random import generator
from .backbones import MLP
from .data import LabelledData, with_noise
from .evaluate import evaluate, predict
from .methods import parse
from .model import Model
from .train import fit

METHODS = (
    "ce",
    "smooth:alpha=0.3",
    "gce:q=0.7",
    "bi-tempered:t1=0.7,t2=2.0",
    "het:temperature=1.0,integration=mc,samples=50",
    "ln:temperature=0.5,lam=1.0",
)
NOISE = "main"


@dataclass(frozen=True)
class Row:
    """One method on the test digits: against the noisy labels, and against the truth."""

    method: str
    noisy_accuracy: float
    clean_accuracy: float
    noisy_log_likelihood: float
    ece: float
    seconds: float


def digits(seed: int = 0) -> tuple[LabelledData, LabelledData, LabelledData, Tensor]:
    """scikit-learn's 1,797 digits as (train, validation, test, T), all labels drawn from T[true, .]."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    T = noise.class_dependent(NOISE)
    data = LabelledData(
        torch.tensor(pixels, dtype=torch.float32) / 16,
        torch.tensor(labels, dtype=torch.int64),
        classes=tuple("0123456789"),
        name="digits",
    )
    train, valid, test = with_noise(data, T, seed).split(1000, 297, 500, seed=seed)
    return train, valid, test, T


def compare(seed: int = 0, epochs: int = 60, methods: tuple[str, ...] = METHODS) -> Iterator[Row]:
    """Train each method on the same noisy digits; one row as each finishes."""
    train, valid, test, _ = digits(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small are slower on several
    try:
        for text in methods:
            yield _row(text, train, valid, test, seed, epochs)
    finally:
        torch.set_num_threads(threads)


def _row(
    text: str, train: LabelledData, valid: LabelledData, test: LabelledData, seed: int, epochs: int
) -> Row:
    method, params = parse(text)
    stages = method.build(**params)
    backbone = MLP(64, (128,), generator=generator(seed, 0, "backbone"))
    head = stages.head(128, 10, generator=generator(seed, 0, "head"))
    run = fit(
        Model(backbone, head, **stages.model),
        train,
        valid=valid,
        loss=stages.loss,
        target=stages.target,
        optimizer=optim.adam,
        epochs=epochs,
        batch_size=64,
        seed=seed,
        device="cpu",
        evaluate_every=epochs,
        progress=False,
    )
    scores = evaluate(run.model, test)
    probabilities = predict(run.model, test).log_p.exp()
    return Row(
        text,
        scores["accuracy"],
        scores["clean_accuracy"],
        scores["log_likelihood"],
        float(metrics.ece(probabilities, test.labels)),
        run.seconds,
    )


def picture(rows: list[Row], T: Tensor, path: Path) -> None:
    """One PNG: the noise on the left, what each method made of it on the right."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.2), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    left.imshow(T, cmap="cividis", vmin=0, vmax=1)
    for i in range(len(T)):
        text, dark = f"{T[i, i]:.2f}"[1:] if T[i, i] < 1 else "1", T[i, i] < 0.55
        left.text(i, i, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    left.set(xlabel="label given", ylabel="digit", title="The noise: P(label | digit)")
    left.set_xticks(range(10))
    left.set_yticks(range(10))
    names = [row.method.partition(":")[0] for row in rows][::-1]
    noisy, clean = [row.noisy_accuracy for row in rows][::-1], [row.clean_accuracy for row in rows][::-1]
    right.hlines(range(len(rows)), noisy, clean, color="0.75", zorder=1)
    right.scatter(
        noisy, range(len(rows)), color="#d55e00", marker="s", label="against noisy labels", zorder=2
    )
    right.scatter(clean, range(len(rows)), color="#0072b2", marker="o", label="against the truth", zorder=2)
    for place, value in enumerate(clean):
        right.annotate(
            f"{value:.3f}", (value, place), (8, 0), textcoords="offset points", va="center", fontsize=9
        )
    right.set_yticks(range(len(rows)), names)
    right.set(xlabel="test accuracy", title="What each method learned", xlim=(min(noisy) - 0.03, 1.0))
    right.grid(axis="x", color="0.9")
    right.set_axisbelow(True)
    right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    figure.savefig(path)


def run(out: str | Path = "dubito-demo", seed: int = 0, show: Callable[[Row], None] | None = None) -> Path:
    """Run the comparison and draw it; returns the path of the picture."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for row in compare(seed):
        rows.append(row)
        if show is not None:
            show(row)
    path = folder / "demo.png"
    picture(rows, digits(seed)[3], path)
    return path
