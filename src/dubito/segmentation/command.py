"""`dubito fit IMAGES --masks MASKS` and `dubito predict`: the task "pixels".

RUN/config.json, model/, training/       as for other tasks
    masks/NAME.png                       predicted classes, as numbers in a palette file
    uncertainty/NAME.png                 entropy of the prediction as a share of log K, 0 to 255
    variance/NAME.png                    for a heteroscedastic model: how much the prediction varies, 0 to 255
    images.csv, metrics.json, examples.png, report.html
    classes.png                          for heteroscedastic models: how much each class varies, by temperature
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import checkpoint, optim
from .._identity import SINCE, describe
from .._loss_calls import unwrap
from .._product.tasks import FitJob, PredictJob, Say
from .._random import generator
from ..backbones import build
from ..data import LabelledData, mask_folders, pixel_images
from ..errors import DubitoError
from ..losses import bi_tempered
from ..methods import parse
from ..procedures import Plain
from ..runs import RunFolder
from ..train import Run
from ..train import fit as train
from . import outputs
from .augment import scale_crop_flip
from .losses import Pixels
from .model import SegmentationModel
from .scores import score_masks

AUTO = ("ce", "het:temperature=1.0", "het:temperature=0.05")
SEVERAL = "trace"
HELD_OUT, SHORT = 0.2, 0.25
BATCH, STEPS, RATE, DECAY = 8, 1500, 1e-3, 1e-4
SCALES = (0.75, 1.5)


@dataclass(frozen=True)
class Setting:
    """What a network is made from; JSON values only."""

    network: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    annotators: int | None
    epochs: int
    side: int | None = None
    seed: int = 0
    device: str = "auto"


def fit(job: FitJob, say: Say) -> Path:
    """Train from folders of images and masks; returns the path of the report."""
    images, masks = job.images or job.data, job.masks
    if masks is None:
        raise DubitoError("pixels need masks", remedy="give their folder: --masks DIR")
    options = {
        k: v for k, v in job.options.items() if k in ("classes", "values", "void", "suffix", "annotators")
    }
    canvas: dict[str, Any] = {} if job.size is None else {"size": (job.size, job.size), "fit": "scale"}
    data = mask_folders(images, masks, **canvas, **options)
    if len(data) < 4:
        raise DubitoError("too few images", expected="at least 4", got=len(data))
    if not bool((data.labels >= 0).any()):
        raise DubitoError(
            "every pixel of the masks is void", where=str(masks),
            remedy="if 255 is a class and not void, name the values: --values 0,255",
        )  # fmt: skip
    if int((data.labels.unique() >= 0).sum()) < 2:
        raise DubitoError(
            "the masks hold a single class", where=str(masks), got=data.classes[int(data.labels.max())],
            remedy="if 255 is a class and not void, name the values: --values 0,255",
        )  # fmt: skip
    if len(labelled(data)) < 4:
        raise DubitoError(
            "too few images with a labelled pixel", where=str(masks), expected="at least 4",
            got=len(labelled(data)),
        )  # fmt: skip
    setting = _setting(job, data)
    if job.method != "auto":
        make(setting, job.method)  # refuses what cannot be trained before there is a run
    config = {"task": "pixels", "setting": asdict(setting), "method": job.method, "data": describe(data)}
    with RunFolder(job.out, config, seed=job.seed, since=SINCE):
        return _complete(job, data, setting, say)


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


def labelled(data: LabelledData) -> LabelledData:
    """The images of which some pixel has a label: the others teach and judge nothing."""
    some = (data.labels >= 0).flatten(1).any(1)
    return data if bool(some.all()) else data.subset(some.nonzero().flatten())


def held_out(count: int) -> int:
    """Images that are kept for validation."""
    return max(1, round(HELD_OUT * count))


def make(setting: Setting, method: str) -> tuple[SegmentationModel, Any]:
    """The untrained model of a method, and its stages."""
    found, params = parse(method)
    crowd = setting.annotators is not None
    if ("crowd" if crowd else "pixels") not in found.valid:
        kind = "several masks per image" if crowd else "pixels"
        raise DubitoError(
            f"{found.name} does not learn from {kind}", remedy="try het, gce, ln, or trace for several"
        )
    if found.needs == "transition" and params.get("alpha") is None:
        raise DubitoError(
            f"{found.name} needs a transition matrix, which is not estimated from masks",
            remedy=f"give a share of labels drawn anew, as {found.name}:alpha=0.1, or let single-cm learn it",
        )
    stages = found.build(**params)
    if stages.procedure is not Plain:
        raise DubitoError(f"{found.name} trains in an order of its own, which pixels do not have")
    network = build(setting.network, setting.shape, generator=generator(setting.seed, 0, "backbone"))
    source = generator(setting.seed, 0, "head")
    count = len(setting.classes)
    head = stages.make_head(network.out_features, count, setting.annotators, generator=source)  # type: ignore[arg-type]
    channel = stages.make_channel(count, setting.annotators)
    # This loss reads enlarged logits: predictions in the same order are those that it trains.
    order = "latent" if unwrap(stages.loss)[0] is bi_tempered else "log_probs"
    return SegmentationModel(network, head, channel=channel, upsample=order, **stages.model), stages


def learn(
    setting: Setting,
    method: str,
    data: LabelledData,
    valid: LabelledData,
    out: Path,
    epochs: int | None = None,
) -> Run[SegmentationModel]:
    """Train one network; a run that is in `out` goes on where it stopped."""
    model, stages = make(setting, method)
    if data.crowd is not None and stages.labels == "vote":
        data, valid = replace(data, crowd=None), replace(valid, crowd=None)
    epochs = epochs or setting.epochs
    return train(
        model,
        data,
        valid=valid,
        loss=stages.loss,
        target=stages.target,
        penalty=stages.penalty,
        procedure=Pixels,
        optimizer=partial(optim.adam, lr=RATE, weight_decay=DECAY, decay="matrices"),
        augment=partial(scale_crop_flip, scales=SCALES, levels=7),
        epochs=epochs,
        batch_size=BATCH,
        seed=setting.seed,
        device=setting.device,
        out=out,
        evaluate_every=max(1, epochs // 10),
        progress=False,
    )


def _complete(job: FitJob, data: LabelledData, setting: Setting, say: Say) -> Path:
    from . import command_page

    usable = labelled(data)
    count = held_out(len(usable))
    valid, learned = usable.split(count, len(usable) - count, seed=setting.seed, purpose="validation")
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
    run = learn(setting, method, learned, valid, place / "final")
    scores = score_masks(run.model, valid.to(next(run.model.parameters()).device))
    model = run.model.cpu()
    weights = {k: v.detach() for k, v in model.state_dict().items()}
    state = {"method": method, "setting": asdict(setting)}
    checkpoint.save(job.out / "model", 0, {"final": weights}, state)
    held = set(valid.ids or ())
    models = {**raced, method: run.model}
    return command_page.write(job, data, setting, method, why, run, scores, held, models, say)


def _race(
    setting: Setting, learned: LabelledData, valid: LabelledData, place: Path, say: Say
) -> tuple[str, list[str], dict[str, Any]]:
    """The method with the best mean IoU on held-out masks after a quarter of the epochs; ties: the simplest."""
    epochs = max(2, round(SHORT * setting.epochs))
    found: dict[str, float] = {}
    models: dict[str, Any] = {}
    for method in AUTO:
        run = learn(setting, method, learned, valid, place / method.replace(":", "-"), epochs)
        device = next(run.model.parameters()).device
        found[method] = score_masks(run.model, valid.to(device)).results()["mean_iou"]
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
        shares = [float((found.mask == k).double().mean()) for k in range(len(setting.classes))]
        rows.append([name, float(found.entropy.mean()), *shares])
    write_csv(out / "images.csv", ["id", "uncertainty", *(f"share_{c}" for c in setting.classes)], rows)
    say(f"{len(data):,} images, {len(setting.classes)} classes, method {method}")
    return out
