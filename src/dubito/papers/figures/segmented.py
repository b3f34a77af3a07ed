"""Segmented images beside the truth, and the variance of each class: Collier et al. 2020, figures 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import DubitoError
from ...segmentation import pictures
from ..results import Result
from ._points import recorded, runs_of
from ._style import Drawing, data_title

SHOWN = 2  # best and worst images, each
Cases = dict[str, dict[str, Any]]  # name of an image -> what a run kept of it


def draw(name: str, results: Sequence[Result], size: str, data: str | None) -> Drawing:
    """The figure of that name from its result lines."""
    runs = [r for r in runs_of(name, results, size, data) if recorded(r, "pixels")]
    if not runs:
        raise DubitoError(
            "these runs kept no pictures", where=name, remedy="run the ones with seed 0; they keep them"
        )
    first = runs[0].config.data
    shown = {_title(r): _cases(r) for r in runs if r.config.data == first}
    classes = tuple(str(c) for c in recorded(runs[0], "pixels")["classes"])  # type: ignore[index]
    picked = _best_and_worst(shown)
    figure = (_photographs if name.endswith("3") else _variances)(shown, picked, classes)
    first_line = "Segmentations" if name.endswith("3") else "Standard deviation of each class's probability"
    half = (len(picked) + 1) // 2
    kept = len(next(iter(shown.values())))
    caption = (
        f"{first_line} on {data_title(first)}, first seed; images in the order of their mean IoU over the models "
        f"shown: the {half} best and the {len(picked) - half} worst of {kept} that were kept."
    )
    return Drawing(figure, caption)


def _title(run: Result) -> str:
    if run.config.method == "ce":
        return "homoscedastic"
    return f"τ = {float(run.config.param('temperature', 1.0) or 1.0):g}"


def _cases(run: Result) -> Cases:
    found: Mapping[str, Any] = recorded(run, "pixels") or {}
    return {str(case["id"]): dict(case) for case in found["cases"]}


def _best_and_worst(shown: Mapping[str, Cases]) -> list[str]:
    """Names of the images with the highest and the lowest mean IoU over the models, from best to worst."""
    common = [i for i in next(iter(shown.values())) if all(i in cases for cases in shown.values())]
    ranked = sorted(common, key=lambda i: -np.mean([cases[i]["iou"] for cases in shown.values()]))
    return ranked if len(ranked) <= 2 * SHOWN else ranked[:SHOWN] + ranked[-SHOWN:]


def _mask(case: Mapping[str, Any], what: str, count: int) -> Any:
    return pictures.coloured(pictures.decode(case[what]).astype(np.int64), count)


def _photographs(shown: Mapping[str, Cases], picked: Sequence[str], classes: Sequence[str]) -> Any:
    """A row per image: input, truth, one segmentation per model."""
    one, count = next(iter(shown.values())), len(classes)
    rows = [
        [pictures.decode(one[i]["image"]), _mask(one[i], "truth", count)]
        + [_mask(cases[i], "prediction", count) for cases in shown.values()]
        for i in picked
    ]
    names = [f"IoU {np.mean([cases[i]['iou'] for cases in shown.values()]):.2f}" for i in picked]
    legend = [*zip(classes, pictures.class_colours(count).tolist()), ("void", pictures.VOID_COLOUR)]
    return pictures.grid(rows, columns=["input", "truth", *shown], row_names=names, legend=legend)


def _variances(shown: Mapping[str, Cases], picked: Sequence[str], classes: Sequence[str]) -> Any:
    """A row per image and temperature: input, segmentation, all classes, the most frequent ones."""
    noisy = {name: cases for name, cases in shown.items() if all("deviation" in c for c in cases.values())}
    if not noisy:
        raise DubitoError("none of these runs has a variance", remedy="run method=het,het-tau as well")
    maps = {
        (name, i): {k: pictures.decode_deviation(v) for k, v in cases[i]["deviation"].items()}
        for name, cases in noisy.items()
        for i in picked
    }
    top = max(float(np.quantile(m, 0.995)) for found in maps.values() for m in found.values())
    rows, names = [], []
    for i in picked:
        for name, cases in noisy.items():
            found = maps[name, i]
            single = [k for k in found if k != "all"]
            heats = [(pictures.heat(found[k], top), classes[int(k)]) for k in single]
            rows.append(
                [pictures.decode(cases[i]["image"]), _mask(cases[i], "prediction", len(classes)),
                 pictures.heat(found["all"], top), *heats]
            )  # fmt: skip
            names.append(f"{name}, IoU {cases[i]['iou']:.2f}")
    columns = ["input", "segmentation", "all classes, half", "most frequent class", "second", "third"]
    legend = [*zip(classes, pictures.class_colours(len(classes)).tolist())]
    return pictures.grid(
        rows, columns=columns, row_names=names, legend=legend, scale=(top, "standard deviation")
    )
