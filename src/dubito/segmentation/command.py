"""`dubito fit IMAGES --masks MASKS` and `dubito predict`: the task "pixels".

RUN/config.json, model/, training/       as for other tasks
    masks/NAME.png                       predicted classes, as numbers in a palette file
    consensus/NAME.png                   of several annotators: their masks merged
    uncertainty/NAME.png                 entropy of the prediction as a share of log K, 0 to 255
    variance/NAME.png                    for a heteroscedastic model: how much the prediction varies, 0 to 255
    doubt/NAME.png                       where a network that has not seen the mask speaks against it, 0 to 255
    review.csv                           the masks, those to look at first on top
    images.csv, metrics.json, examples.png, report.html
    classes.png                          for heteroscedastic models: how much each class varies, by temperature
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import checkpoint
from .._identity import SINCE, describe
from .._product.tasks import FitJob, PredictJob, Say
from ..data import LabelledData, mask_folders, pixel_images
from ..errors import DubitoError
from ..runs import RunFolder
from . import outputs, review
from .merge import consensus
from .model import SegmentationModel
from .training import BATCH, Setting, labelled, learn, make

AUTO = ("ce", "het:temperature=1.0", "het:temperature=0.05")
SEVERAL = "trace"
HELD_OUT, SHORT = 0.2, 0.25
STEPS = 1500
LARGE = 1 << 20  # pixels of an image


def fit(job: FitJob, say: Say) -> Path:
    """Train from folders of images and masks; returns the path of the report."""
    images, masks = job.images or job.data, job.masks
    if masks is None:
        raise DubitoError("pixels need masks", remedy="give their folder: --masks DIR")
    _check_options(job)
    options = {
        k: v for k, v in job.options.items() if k in ("classes", "values", "void", "suffix", "annotators")
    }
    canvas: dict[str, Any] = {} if job.size is None else {"size": (job.size, job.size), "fit": "scale"}
    data = mask_folders(images, masks, **canvas, **options)
    _check_masks(data, masks)
    height, width = data.labels.shape[1:]
    if height * width > LARGE:
        say(
            f"note: images of up to {height} x {width} pixels; --size N scales them, for less memory and time"
        )
    setting = _setting(job, data)
    seen = data.labels.unique()
    empty = len(data.classes) - int((seen >= 0).sum())
    if empty and not options.get("values") and data.classes == tuple(map(str, range(len(data.classes)))):
        say(
            f"{empty} of {len(data.classes)} classes occur nowhere; if numbers of classes have gaps, name them: "
            f"--values {','.join(map(str, seen[seen >= 0].tolist()))}"
        )
    if job.method != "auto":
        make(setting, job.method)  # refuses what cannot be trained before there is a run
    config = {"task": "pixels", "setting": asdict(setting), "method": job.method, "data": describe(data)}
    with RunFolder(job.out, config, seed=job.seed, since=SINCE):
        return _complete(job, data, setting, say)


def _check_options(job: FitJob) -> None:
    """Refuse what means nothing for masks, which would be passed over in silence."""
    for name in ("label", "annotator", "item", "groups", "features", "clean", "gold"):
        if getattr(job, name):
            raise DubitoError(f"--{name} is not for masks", where=str(job.masks), remedy="leave it out")
    if job.epochs is not None and job.epochs < 1:
        raise DubitoError("--epochs is too small", expected="at least 1", got=job.epochs)
    if job.folds < 1:
        raise DubitoError(
            "no such number of folds", expected="at least 1, which leaves them out", got=job.folds
        )


def _check_masks(data: LabelledData, masks: Path) -> None:
    """Refuse masks that there is nothing to learn from."""
    seen = [int(k) for k in data.labels.unique() if k >= 0]
    if len(data) < 4:
        raise DubitoError("too few images", expected="at least 4", got=len(data))
    if len(seen) < 2:
        raise DubitoError(
            "the masks hold a single class" if seen else "every pixel of the masks is void", where=str(masks),
            got=data.classes[seen[0]] if seen else None,
            remedy="if 255 is a class and not void, name the values: --values 0,255",
        )  # fmt: skip
    if len(labelled(data)) < 4:
        raise DubitoError(
            "too few images with a labelled pixel", where=str(masks), expected="at least 4",
            got=len(labelled(data)),
        )  # fmt: skip


def _setting(job: FitJob, data: LabelledData) -> Setting:
    shape = (3, *data.labels.shape[1:])
    network = "encoder-decoder" if min(shape[1:]) >= 96 else "encoder-decoder-small"
    people = len(data.annotators) if data.crowd is not None else None
    whole = len(labelled(data))
    count = whole - held_out(whole)
    epochs = job.epochs or max(10, math.ceil(STEPS * min(BATCH, count) / count))
    return Setting(
        network if job.backbone == "auto" else job.backbone, shape, data.classes, people, epochs, job.size,
        job.seed, job.device,
    )  # fmt: skip


def held_out(count: int) -> int:
    """Images that are kept for validation."""
    return max(1, round(HELD_OUT * count))


def _complete(job: FitJob, data: LabelledData, setting: Setting, say: Say) -> Path:
    from . import command_page

    merged = consensus(data)
    # Several masks are scored against what they say together, which no method is closer to than another.
    judged = data if merged is None else replace(data, labels=merged.labels.to(data.labels.dtype))
    usable = labelled(data)
    count = held_out(len(usable))
    split = partial(LabelledData.split, seed=setting.seed, purpose="validation")
    learned = split(usable, count, len(usable) - count)[1]
    valid = split(labelled(judged), count, len(usable) - count)[0]
    say(
        f"{len(learned):,} images to learn from, {count:,} held out; {len(data.classes)} classes; {setting.network}"
    )
    place = job.out / "training"
    method, why = job.method, [f"{job.method} was asked for."]
    raced: dict[str, Any] = {}
    if method == "auto" and setting.annotators is not None:
        method, why = SEVERAL, ["Several annotators: one confusion matrix each, learned with the network."]
    elif method == "auto":
        method, why, raced = _race(setting, learned, valid, place, say)
    say(f"{method}: {setting.epochs} epochs")
    matrices = None if merged is None else merged.matrices
    run = learn(setting, method, learned, valid, place / "final", matrices=matrices)
    scores = outputs.scored(run.model, valid)
    weights = {k: v.detach() for k, v in run.model.cpu().state_dict().items()}
    state = {"method": method, "setting": asdict(setting)}
    checkpoint.save(job.out / "model", 0, {"final": weights}, state)
    held = set(valid.ids or ())
    models = {**raced, method: run.model}
    doubts = _doubts(job, setting, method, usable, run.model, place, matrices, say)
    return command_page.write(job, judged, setting, method, why, run, scores, held, models, doubts, say)


def _doubts(
    job: FitJob, setting: Setting, method: str, usable: LabelledData, model: SegmentationModel, place: Path,
    matrices: Tensor | None, say: Say,
) -> list[review.Doubted]:  # fmt: skip
    """What is said against every mask by networks that have not seen it, after a quarter of the epochs."""
    folds = min(job.folds, len(usable))
    if folds < 2:
        return list(review.judged(model, usable))
    epochs = max(2, round(SHORT * setting.epochs))
    say(f"judging every mask by a network that has not seen it: {folds} parts, {epochs} epochs each")

    def trained(fold: int, learned: LabelledData, part: LabelledData) -> SegmentationModel:
        out = place / f"part-{fold + 1}-of-{folds}"
        return learn(setting, method, learned, part, out, epochs, matrices).model

    return list(review.out_of_fold(usable, trained, folds=folds, seed=setting.seed))


def _race(
    setting: Setting, learned: LabelledData, valid: LabelledData, place: Path, say: Say
) -> tuple[str, list[str], dict[str, Any]]:
    """The method with the best mean IoU on held-out masks after a quarter of the epochs; ties: the simplest."""
    epochs = max(2, round(SHORT * setting.epochs))
    found: dict[str, float] = {}
    models: dict[str, Any] = {}
    for method in AUTO:
        run = learn(setting, method, learned, valid, place / method.replace(":", "-"), epochs)
        found[method] = outputs.scored(run.model, valid).results()["mean_iou"]
        models[method] = run.model.cpu()
        say(f"{method}: mean IoU {found[method]:.3f} on held-out masks after {epochs} epochs")
    best = max(AUTO, key=lambda m: found[m])
    listed = ", ".join(f"{m} {v:.3f}" for m, v in found.items())
    why = f"{best} had the best mean IoU on held-out masks after {epochs} epochs ({listed})."
    return best, [why], models


def load(run: Path) -> tuple[SegmentationModel, Setting, str]:
    """The trained model of a run."""
    found = checkpoint.load_latest(run / "model")
    if found is None:
        raise DubitoError("this run has no model yet", where=str(run), remedy="let `dubito fit` finish")
    plain: Mapping[str, Any] = found.state["setting"]
    setting = Setting(**{**plain, "shape": tuple(plain["shape"]), "classes": tuple(plain["classes"])})
    model, _ = make(setting, found.state["method"])
    model.load_state_dict(found.tensors["final"])
    return model.eval(), setting, str(found.state["method"])


def _check_place(out: Path, images: Path) -> None:
    """Refuse a folder in which predictions would replace a run's own masks, or pass for images."""
    if out.exists() and not out.is_dir():
        raise DubitoError("masks go into a folder", where=str(out), got="a file")
    if (out / "config.json").exists():
        raise DubitoError("this folder is a run's", where=str(out), remedy="give --out another folder")
    if images.resolve() in (out.resolve(), *out.resolve().parents):
        raise DubitoError(
            "predicted masks would lie among the images", where=str(out), remedy="give --out another folder"
        )


def predict(job: PredictJob, say: Say) -> Path:
    """Write masks and maps of uncertainty for the images of a folder; returns the folder they are in."""
    from .._context import device_of
    from .._product.writing import write_csv

    model, setting, method = load(job.run)
    out = job.out.with_suffix("") if job.out.suffix == ".csv" else job.out
    _check_place(out, job.data)
    canvas: dict[str, Any] = (
        {} if setting.side is None else {"size": (setting.side, setting.side), "fit": "scale"}
    )
    data = pixel_images(job.data, len(setting.classes), **canvas)
    model = model.to(device_of(job.device))
    rows = []
    for found in outputs.judge(model, data):
        name = str((data.ids or ())[found.row])
        outputs.write(out, name, found, len(setting.classes))
        shares = [int((found.mask == k).sum()) / found.mask.numel() for k in range(len(setting.classes))]
        rows.append([name, float(found.entropy.mean()), *shares])
    write_csv(out / "images.csv", ["id", "uncertainty", *(f"share_{c}" for c in setting.classes)], rows)
    say(f"{len(data):,} images, {len(setting.classes)} classes, method {method}")
    return out
