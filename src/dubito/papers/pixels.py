"""Runs on pixels: the data, the model and the scores of a config whose labels are masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .. import metrics
from ..data import LabelledData
from ..model import Model
from .configs import Config

# Set -> whether the masks of its test part are public.
SETS = {"camvid": True, "cityscapes": False, "shapes": True, "voc": False}
SHAPES = {"train": 200, "val": 16, "test": 24}
PICTURES, SIDE, SHOWN = 6, 240, 3  # images that are kept, their longest side, classes with a map of their own
KEPT = (0.05, 1.0, 5.0)  # temperatures whose pictures are kept
Read = Callable[[str, str], LabelledData]


def is_pixels(config: Config) -> bool:
    """Whether the labels of a config are masks."""
    return config.data in SETS


def parts(config: Config, read: Read) -> tuple[LabelledData, LabelledData, LabelledData]:
    """Training, validation and test part; `config.labels` names another training part than "train".

    Where test masks are not public, the validation part is scored in place of the test part.
    """
    if config.data == "shapes":
        from ..segmentation.shapes import shapes

        made = [shapes(n, seed=config.seed, purpose=part) for part, n in SHAPES.items()]
    else:
        names = (config.labels or "train", "val", "test" if SETS[config.data] else "val")
        made = [read(config.data, name) for name in names]
    train, valid, test = made
    if config.train and config.train < len(train):
        train = train.split(config.train, seed=config.seed)[0]
    return with_border_noise(config, train), _first(valid, config.validation), _first(test, config.test)


def _first(part: LabelledData, count: int) -> LabelledData:
    return part.subset(torch.arange(count)) if 0 < count < len(part) else part


def with_border_noise(config: Config, train: LabelledData) -> LabelledData:
    """The training part with objects drawn too large or too small by up to `rate` pixels, for "border" noise."""
    if config.noise != "border":
        return train
    from ..segmentation.noise import BorderHabits, border_noise

    habits = BorderHabits(grow=(-config.rate, config.rate), shift=config.rate / 2, simplify=config.rate / 2)
    return train.with_labels(border_noise(train.labels.long(), habits, seed=config.seed), clean=train.labels)


def model(config: Config, backbone: Any, head: Any, channel: Any, options: dict[str, Any]) -> Model:
    """The model of every pixel; networks of DeepLab's kind enlarge corner to corner."""
    from ..segmentation import SegmentationModel

    reading = dict(config.reading)
    return SegmentationModel(
        backbone, head, channel=channel, upsample=str(reading.get("upsample", "log_probs")),
        align_corners=config.network.startswith("smp:DeepLab"), **options,
    )  # fmt: skip


def augmentations() -> dict[str, Callable[..., Any]]:
    """Names of augmentations that move masks with their images."""
    from ..segmentation.augment import scale_crop_flip

    mild = (0.75, 1.5)
    return {
        "scale-crop513-flip": partial(scale_crop_flip, crop=(513, 513)),
        "scale-crop769-flip": partial(scale_crop_flip, crop=(769, 769)),
        "scale-crop160x208-flip": partial(scale_crop_flip, crop=(160, 208), scales=mild),
        "scale-crop-flip": partial(scale_crop_flip, scales=mild),
    }


def scored(config: Config, model: Any, valid: LabelledData | None, test: LabelledData) -> dict[str, float]:
    """mIoU over the set, accuracy and log-likelihood of pixels; test figures only where its masks are public."""
    found: dict[str, float] = {}
    if valid is not None:
        judged = judge(model, valid)
        found |= {
            "miou": judged["mean_iou"],
            "validation_accuracy": judged["accuracy"],
            "validation_log_likelihood": judged["log_likelihood"],
        }
    if SETS[config.data]:
        judged = judge(model, test)
        found |= {"miou_test": judged["mean_iou"], "boundary_iou_test": judged["boundary_iou"]}
        found |= {"ece": judged["ece"]}
        for kind in ("accuracy", "log_likelihood"):
            found |= {f"test_{kind}": judged[kind], f"noisy_test_{kind}": judged[kind]}
    return found


def judge(model: Any, data: LabelledData) -> dict[str, float]:
    """Scores of a part against its clean masks where they are known."""
    from ..segmentation import score_masks

    return score_masks(model, data, clean=data.clean is not None).results()


def image_iou(prediction: Tensor, truth: Tensor, num_classes: int) -> float:
    """Mean IoU of one image over the classes that occur in it, 0 where every pixel is void."""
    counts = metrics.confusion_counts(prediction, truth, num_classes)
    return metrics.mean_iou(counts) if int(counts.sum()) else 0.0


def pictured(config: Config, model: Any, test: LabelledData) -> dict[str, Any]:
    """Some images of the test part with truth, prediction and variance, as text; of the first seed alone.

    The images are the same for every method: evenly spaced over the part. Variance is that of the `SHOWN` most
    frequent true classes of an image, and the sum over all classes.
    """
    if config.seed or float(config.param("temperature", 1.0) or 1.0) not in KEPT:
        return {}
    rows = torch.linspace(0, len(test) - 1, min(PICTURES, len(test))).round().long().unique()
    cases = [_case(model, test, row.view(1).to(test.device)) for row in rows]
    return {"classes": list(test.classes), "cases": cases}


def _case(model: Any, test: LabelledData, row: Tensor) -> dict[str, Any]:
    from ..segmentation import pictures as p

    x, truth = test.batch(row), (test.labels if test.clean is None else test.clean)[row][0].cpu().long()
    with torch.no_grad():
        found = model(x)[0].argmax(-1).cpu()
    variance = p.variance_maps(model, x)
    step = max(1, -(-max(truth.shape) // SIDE))
    thin = (slice(None, None, step),) * 2
    frequent = torch.bincount(truth[truth >= 0].flatten(), minlength=model.num_classes).argsort(
        descending=True
    )
    case: dict[str, Any] = {
        "id": str(test.ids[int(row)]) if test.ids is not None else str(int(row)),
        "iou": round(image_iou(found, truth, model.num_classes), 4),
        "image": p.encode(p.photo(test.gather(row)[0].cpu())[thin], quality=88),
        "truth": p.encode(truth.where(truth >= 0, 255)[thin].numpy()),
        "prediction": p.encode(found[thin].numpy()),
    }
    if variance is not None:
        maps = variance[0].cpu()[thin]
        case["deviation"] = {str(int(c)): p.encode_deviation(maps[..., c]) for c in frequent[:SHOWN]}
        case["deviation"]["all"] = p.encode_deviation(
            maps.sum(-1) / 4
        )  # half the root of the sum: at most 1/2
    return case
