"""How much the probability of each class varies, on a user's own images and at several temperatures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from .._report import Picture
from ..data import LabelledData
from ..evaluate import _judging
from . import outputs, pictures
from .model import SegmentationModel

FREQUENT, SHOWN = 3, 4  # classes of an image that have a map, images that have maps
Array = pictures.Array


class ClassMaps(NamedTuple):
    """Maps of one image under one model: title, prediction, class -> standard deviation (H, W)."""

    title: str
    example: Mapping[str, Any]
    guess: Array
    deviations: Mapping[int, Array]


def noisy(models: Mapping[str, Any], chosen: str) -> dict[str, SegmentationModel]:
    """Models that have a variance, by their temperature, lowest first; all but the chosen one were just tried."""
    found = {
        float(m.tau): (m, "" if name == chosen else ", short trial")
        for name, m in models.items()
        if getattr(m.head, "noisy", False)
    }
    return {f"τ = {tau:g}{found[tau][1]}": found[tau][0] for tau in sorted(found)}


@torch.no_grad()
def class_maps(
    models: Mapping[str, SegmentationModel], data: LabelledData, examples: Sequence[Mapping[str, Any]]
) -> list[ClassMaps]:
    """Maps of the classes that are most frequent in the mask of each example, under each model."""
    files: Any = data.inputs
    made = []
    for example in examples:
        x = data.to("cpu").normalise(files.image(example["row"]).unsqueeze(0))
        given = example["given"]
        counts = torch.bincount(given[given >= 0].flatten())
        classes = [int(c) for c in counts.argsort(descending=True)[:FREQUENT] if int(counts[c])]
        for title, model in models.items():
            seen = x.to(next(model.parameters()).device)
            with _judging(model):
                guess = model(seen)[0].argmax(-1).cpu().numpy()
            variance = pictures.variance_maps(model, seen, samples=256)
            assert variance is not None
            roots = variance[0].clamp(min=0).sqrt().cpu().numpy()
            made.append(ClassMaps(title, example, guess, {c: roots[..., c] for c in classes}))
    return made


def ends(examples: Sequence[Any], count: int = SHOWN) -> list[Any]:
    """The first and the last of examples that are ranked: good and bad cases."""
    half = count // 2
    return list(examples) if len(examples) <= count else [*examples[:half], *examples[-half:]]


def write_grid(path: Path, maps: Sequence[ClassMaps], classes: Sequence[str]) -> None:
    """One picture: a row per image and temperature."""
    top = highest(maps)
    rows: list[list[pictures.Panel]] = [
        [*_first(m, len(classes)), *((pictures.heat(d, top), classes[c]) for c, d in m.deviations.items())]
        for m in maps
    ]
    figure = pictures.grid(
        rows,
        columns=["image", "mask", "prediction", "most frequent class", "second", "third"][: 3 + FREQUENT],
        row_names=[m.title for m in maps],
        legend=[*zip(classes, pictures.class_colours(len(classes)).tolist())],
        scale=(top, "standard deviation"),
    )
    pictures.save(figure, path)


def page_pictures(maps: Sequence[ClassMaps], classes: Sequence[str]) -> list[Picture]:
    """The same as pictures of a report."""
    top = highest(maps)
    made = []
    for m in maps:
        panels = [*_first(m, len(classes)), *(pictures.heat(d, top) for d in m.deviations.values())]
        listed = ", ".join(classes[c] for c in m.deviations)
        caption = (
            f"{m.title}. Image, mask as drawn, prediction, standard deviation of the probability of {listed}."
        )
        made.append(Picture(m.example["name"], f"{caption} Lightest: {top:.2f}.", outputs.strip(panels)))
    return made


def highest(maps: Sequence[ClassMaps]) -> float:
    """The deviation that is drawn lightest: nearly the largest of all maps."""
    values = [float(np.quantile(d, 0.995)) for m in maps for d in m.deviations.values()]
    return max([*values, 1e-6])


def _first(m: ClassMaps, count: int) -> list[Array]:
    return pictures.beside(m.example["image"], m.example["given"], m.guess, count)
