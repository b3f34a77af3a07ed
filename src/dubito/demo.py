"""The demo: digits that five annotators of different skill have labelled, the vote beside the joint model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ._files import make_folder
from ._numbers import word
from ._product.reading import Scale, scale_of
from ._product.tasks import FitJob, Say, fit
from ._product.training import Setting, train
from ._product.writing import write_arrays
from ._report import Fact
from .crowd import majority_vote
from .data import LabelledData, Triplets
from .evaluate import evaluate
from .model import Model
from .noise import simulate

METHOD = "crossfit-em"
SKILLS = {"Ada": 0.95, "Bo": 0.8, "Cem": 0.6, "Dee": 0.4, "Eli": 0.25}
PER_ITEM, TEST, EPOCHS, FOLDS = 2, 600, 25, 3


@dataclass(frozen=True)
class Row:
    """One way to learn: how many training digits it would file right, and how many test digits it reads right."""

    name: str
    training: float
    test: float


@dataclass(frozen=True)
class Found:
    """What the demo shows: two ways to learn, and the page."""

    rows: list[Row]
    report: Path
    skills: dict[str, float] = field(default_factory=dict)


def digits(seed: int = 0) -> tuple[LabelledData, LabelledData]:
    """scikit-learn's 1,797 digits: a training part, each digit labelled by two of five annotators, and a test part.

    An annotator of skill s gives the right digit with probability s + (1 - s) / 10 and any digit otherwise. Eli
    mistakes digits for the next one instead.
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    truth = torch.tensor(labels, dtype=torch.int64)
    images = torch.tensor(pixels * 15, dtype=torch.uint8).view(-1, 1, 8, 8)
    data = LabelledData(images, truth, clean=truth, classes=tuple("0123456789"), name="digits")
    train_part, test = data.split(len(data) - TEST, TEST, seed=seed)
    said = simulate(train_part.labels, matrices(), torch.Generator().manual_seed(word(seed)), PER_ITEM)
    crowd = replace(
        train_part,
        labels=torch.full_like(train_part.labels, -1),
        crowd=Triplets(*said),
        annotators=tuple(SKILLS),
    )
    return crowd, test


def matrices() -> Tensor:
    """A[r, true, given] of the five."""
    skill = torch.tensor(list(SKILLS.values()), dtype=torch.float64).view(-1, 1, 1)
    eye = torch.eye(10, dtype=torch.float64)
    A = skill * eye + (1 - skill) / 10
    A[-1] = SKILLS["Eli"] * eye + (1 - SKILLS["Eli"]) * eye.roll(1, 1)
    return A


def run(out: str | Path = "dubito-demo", seed: int = 0, say: Say = lambda _: None) -> Found:
    """Train on the vote and jointly, write the report; returns what was found."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # networks this small are slower on several
    try:
        return _run(Path(out), seed, say)
    finally:
        torch.set_num_threads(threads)


def _run(folder: Path, seed: int, say: Say) -> Found:
    make_folder(folder)
    data, test = digits(seed)
    file = write_data(folder / f"digits-{seed}.npz", data)
    rows = [_vote(data, test, seed)]
    say(f"cross-entropy on the majority vote reads {100 * rows[0].test:.1f} % of {TEST} new digits right")
    say(f"now the joint model, as in: dubito fit {file} --method {METHOD} --epochs {EPOCHS} --folds {FOLDS}")
    job = FitJob(
        file,
        folder / f"run-{seed}",
        method=METHOD,
        epochs=EPOCHS,
        folds=FOLDS,
        seed=seed,
        device="cpu",
        command=f"dubito demo --out {folder} --seed {seed}",
        options={"beside": _Beside(data, test, rows), "title": "Digits by five annotators"},
    )
    page = fit(job, say)
    return Found(rows, page, SKILLS)


def write_data(path: Path, data: LabelledData) -> Path:
    """The crowd's labels and the pictures as `dubito fit` reads them."""
    assert data.crowd is not None
    item, who, label = (t.numpy() for t in data.crowd)
    x = data.gather(torch.arange(len(data))).squeeze(1).numpy()
    names = [list(SKILLS)[r] for r in who.tolist()]
    arrays: dict[str, Any] = {"x": x, "item": item, "worker": names, "label": label}
    return write_arrays(path, **arrays, truth=data.clean.numpy())  # type: ignore[union-attr]


def _vote(data: LabelledData, test: LabelledData, seed: int) -> Row:
    votes, _ = majority_vote(data.crowd_labels(), seed=seed)
    right = _share(votes.long(), data)
    scale = scale_of(data)
    setting = Setting("mlp", (1, 8, 8), 10, len(SKILLS), EPOCHS, seed=seed, device="cpu")
    model = train(setting, "ce", {}, scale.apply(data)).model
    return Row("cross-entropy on the vote", right, _test(model, scale, test))


def _share(classes: Tensor, data: LabelledData) -> float:
    assert data.clean is not None
    return float((classes == data.clean).double().mean())


def _test(model: Model, scale: Scale, test: LabelledData) -> float:
    return evaluate(model, scale.apply(test))["clean_accuracy"]


@dataclass(frozen=True)
class _Beside:
    """Adds to the report how the joint model and the vote do on new digits."""

    data: LabelledData
    test: LabelledData
    rows: list[Row]

    def __call__(self, model: Model, scale: Scale, posterior: Tensor) -> list[Fact]:
        consensus = _share(posterior.argmax(1), self.data)
        self.rows[1:] = [Row(f"joint model ({METHOD})", consensus, _test(model, scale, self.test))]
        facts = []
        for row in self.rows:
            facts.append(Fact(f"new digits read right: {row.name}", row.test, note=f"of {TEST} digits"))
            facts.append(
                Fact(f"training digits filed right: {row.name}", row.training, note="against the truth")
            )
        return facts
