"""What a run on pixels leaves to read: maps, a table of images, scores, examples and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._product.page import curves
from .._product.tasks import FitJob, Say
from .._product.writing import write_csv, write_json
from .._report import Annotator, Fact, Matrix, Picture, ReportData, report
from .._versions import versions
from ..data import LabelledData
from ..metrics import confusion_counts, mean_iou
from ..train import Run
from . import class_maps, outputs, pictures, review_page
from .model import SegmentationModel
from .review import Doubted
from .scores import SegmentationScores
from .training import Setting, labelled

SHOWN = 6  # examples on the page
REVIEW = (
    "Suspicious labels are patches of a mask that {} calls otherwise; thick patches come before thin ones along "
    "borders. Each picture shows the image, the mask and the prediction."
)
UNSEEN, SEEN = (
    "a network which has not seen the mask",
    "the network of this run, which knows the masks it learned from,",
)
MERGED = (
    "Where images have several masks, scores and pictures set predictions beside the masks merged "
    "(consensus/): every annotator counts for as much as the masks together bear him out."
)
NAMES = {
    "mean_iou": "mean IoU",
    "boundary_iou": "boundary IoU",
    "accuracy": "accuracy of pixels",
    "log_likelihood": "log-likelihood per pixel",
    "ece": "calibration error",
}


def write(
    job: FitJob,
    data: LabelledData,
    setting: Setting,
    method: str,
    why: Sequence[str],
    run: Run,
    scores: SegmentationScores,
    held: Set[str],
    models: Mapping[str, SegmentationModel],
    doubts: Sequence[Doubted],
    say: Say,
) -> Path:
    """All files of a finished run; returns the path of the report.

    `models` are those that were trained, this run's among them; the maps of each class show all that have noise.
    `doubts` are of the images that have a labelled pixel, in the order of `data`.
    """
    say("writing masks and maps")
    rows, chosen = _maps(job.out, data, run.model, held)
    write_csv(job.out / "images.csv", ["id", "part", "iou", "log_likelihood", "uncertainty"], rows)
    found = scores.results()
    values, present = scores.class_iou()
    per_class = {c: float(v) for c, v, there in zip(setting.classes, values, present) if there}
    write_json(job.out / "metrics.json", {"method": method, "why": list(why), **found, "iou": per_class})
    _grid(job.out / "examples.png", chosen, setting.classes)
    shown = [_picture(e, setting.classes) for e in chosen]
    maps = class_maps.class_maps(class_maps.noisy(models, method), data, class_maps.ends(chosen))
    if maps:
        class_maps.write_grid(job.out / "classes.png", maps, setting.classes)
        shown += class_maps.page_pictures(maps, setting.classes)
    listed = review_page.write(job.out, labelled(data), doubts, setting.classes)
    first = [str((labelled(data).ids or ())[d.row]) for d in review_page.ranked(doubts)]
    content = ReportData(
        f"{data.name}: masks and model",
        summary=[
            f"Mean IoU {found['mean_iou']:.3f} on {len(held):,} held-out images by {method}; "
            f"{100 * found['accuracy']:.1f} % of their labelled pixels are predicted as they were drawn.",
            f"At borders the IoU is {found['boundary_iou']:.3f}.",
            f"Masks to look at first: {', '.join(dict.fromkeys(first[:3]))} (review.csv has all, in this order).",
        ],
        facts=_facts(job, data, setting),
        metrics=[Fact(NAMES[k], v) for k, v in found.items() if k in NAMES]
        + [Fact(f"IoU of {c}", v) for c, v in per_class.items()],
        curves=curves({"network": run.history}),
        annotators=_skills(run.model.channel, data),
        annotator_matrices=_matrices(run.model.channel, data, setting.classes),
        suspicions=listed,
        choice=list(why),
        notes=[REVIEW.format(UNSEEN if job.folds > 1 else SEEN), *([] if data.crowd is None else [MERGED])],
        pictures=shown,
        command=job.command,
        versions=versions(),
    )
    path = report(content, job.out / "report.html", anonymise=job.anonymise)
    for line in content.summary:
        say(str(line))
    return path


def _maps(
    out: Path, data: LabelledData, model: Any, held: Set[str]
) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """Masks and maps of every image; a row of the table and, of the best and worst held out, what pictures need."""
    rows: list[list[Any]] = []
    examples: list[dict[str, Any]] = []
    files: Any = data.inputs
    for found in outputs.judge(model, data):
        name = str((data.ids or ())[found.row])
        outputs.write(out, name, found, model.num_classes)
        given = outputs.given(data, found)
        if data.crowd is not None:
            outputs.write_mask(out / "consensus" / f"{name}.png", given, model.num_classes, found.mask.shape)
        guess = found.log_p.argmax(-1)
        kept = given >= 0
        counts = confusion_counts(guess, given, model.num_classes)
        iou = mean_iou(counts) if bool(kept.any()) else None
        picked = found.log_p.gather(-1, given.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        likelihood = float(picked[kept].mean()) if bool(kept.any()) else None
        part = "held out" if name in held else "learned from" if bool(kept.any()) else "no label"
        rows.append([name, part, iou, likelihood, float(found.entropy.mean())])
        if name in held and iou is not None:
            image = pictures.photo(files.image(found.row))
            examples.append({"name": name, "row": found.row, "iou": iou, "image": image, "given": given,
                             "guess": guess, "entropy": found.entropy, "deviation": found.deviation})  # fmt: skip
            examples = class_maps.ends(sorted(examples, key=lambda e: -e["iou"]), SHOWN)
    return rows, examples


def _panels(example: dict[str, Any], count: int) -> list[Any]:
    panels = pictures.beside(example["image"], example["given"], example["guess"], count)
    panels.append(pictures.heat(example["entropy"], 1.0))
    if example["deviation"] is not None:
        panels.append(pictures.heat(example["deviation"], 1.0))
    return panels


def _grid(path: Path, chosen: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    columns = ["image", "mask", "prediction", "entropy", "deviation"]
    figure = pictures.grid(
        [_panels(e, len(classes)) for e in chosen],
        columns=columns,
        row_names=[f"IoU {e['iou']:.2f}" for e in chosen],
        legend=[*zip(classes, pictures.class_colours(len(classes)).tolist())],
    )
    pictures.save(figure, path)


def _picture(example: dict[str, Any], classes: Sequence[str]) -> Picture:
    panels = _panels(example, len(classes))
    last = ", how much the prediction varies" if len(panels) > 4 else ""
    caption = f"IoU {example['iou']:.3f}. Image, mask as drawn, prediction, entropy{last}."
    return Picture(example["name"], caption, outputs.strip(panels))


def _facts(job: FitJob, data: LabelledData, setting: Setting) -> list[Fact]:
    values = job.options.get("values") or ()
    said = ", ".join(f"{name} is {value}" for name, value in zip(setting.classes, values))
    facts = [
        Fact("images", len(data)),
        Fact("classes", len(setting.classes), note=said),
        Fact("network", setting.network),
        Fact("share of pixels with a label", round(float((data.labels >= 0).double().mean()), 4)),
    ]
    if data.crowd is not None:
        facts.append(Fact("masks", len(data.crowd.item), note=f"by {len(data.annotators)} annotators"))
    return facts


def _confusions(channel: Any, data: LabelledData) -> Tensor | None:
    if data.crowd is None or not getattr(channel, "per_annotator", False):
        return None
    with torch.no_grad():
        found: Tensor = channel.log_matrices().exp().cpu()
    return found


def _skills(channel: Any, data: LabelledData) -> list[Annotator]:
    A = _confusions(channel, data)
    if A is None or data.crowd is None:
        return []
    drawn = torch.bincount(data.crowd.annotator, minlength=len(A)).tolist()
    skill = A.diagonal(dim1=-2, dim2=-1).mean(-1).tolist()
    found = [Annotator(*person) for person in zip(data.annotators, drawn, skill)]
    return sorted(found, key=lambda a: a.skill)  # the worst first, as in an audit


def _matrices(channel: Any, data: LabelledData, classes: Sequence[str]) -> list[Matrix]:
    A = _confusions(channel, data)
    if A is None:
        return []
    return [
        Matrix(name, classes, classes, matrix.tolist(), annotator=name)
        for name, matrix in zip(data.annotators, A)
    ]
