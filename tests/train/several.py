"""What several processes do together, started by torchrun or with its variables: python several.py JOB FOLDER"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from small import crowd, network, pixels, problem
from torch import nn

from dubito import _distributed, channels, heads, optim, penalties
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.evaluate import evaluate
from dubito.model import Model
from dubito.procedures import CoTeaching, GeneralisedEM, SelfPaced
from dubito.segmentation import Pixels, SegmentationModel, several_masks, vote
from dubito.segmentation.augment import scale_crop_flip
from dubito.train import fit

RANK = int(os.environ.get("RANK", "0"))


def wide(data: LabelledData) -> LabelledData:
    return LabelledData(data.inputs.double(), data.labels, clean=data.clean, crowd=data.crowd)  # type: ignore[union-attr]


def partly(n: int) -> LabelledData:
    data = problem(n)
    data.labels[::3] = -1
    return data


# Parts of a step are uneven, and the last step of an epoch has fewer examples than there are processes.
CASES: dict[str, Callable[[], tuple[Model, LabelledData, dict[str, Any]]]] = {
    "plain": lambda: (network(), problem(50), {"batch_size": 7, "select": "best"}),
    "clipped": lambda: (
        network(),
        problem(50),
        {"clip": 0.1, "ema": 0.9, "optimizer": partial(optim.sgd, lr=0.5)},
    ),
    "unlabelled": lambda: (network(), partly(50), {"batch_size": 7}),
    "coteaching": lambda: (network(), partly(50), {"procedure": partial(CoTeaching, rate=0.3, ramp=2)}),
    "mentornet": lambda: (network(), partly(50), {"procedure": partial(SelfPaced, rate=0.3, burn_in=1)}),
    "pixels": lambda: (*reversed(pixels(7)), {"batch_size": 3}),  # type: ignore[arg-type, return-value]
    "annotators": lambda: (
        network(channel=channels.AnnotatorConfusion(4, 3)),
        crowd(50),
        {"penalty": penalties.trace, "batch_size": 7},
    ),
    "em": lambda: (network(), crowd(50), {"procedure": partial(GeneralisedEM, rounds=2)}),
    "masks": lambda: (*masks(7), {"procedure": Pixels, "penalty": penalties.trace, "batch_size": 3}),
    "moved": lambda: (*masks(7), {"procedure": Pixels, "augment": scale_crop_flip, "batch_size": 3}),
}


def masks(n: int) -> tuple[SegmentationModel, LabelledData]:
    """Up to two masks per image, some missing, with void, and a matrix per annotator."""
    g = torch.Generator().manual_seed(0)
    x, drawn = torch.randn(n, 3, 8, 6, generator=g), torch.randint(3, (n, 2, 8, 6), generator=g)
    drawn[:, :, :1] = -100
    drawn[1] = -100
    drawn[::2, 1] = -100
    net = EncoderDecoder(3, widths=(8,), decoder=8, stride=2, norm="group")
    model = SegmentationModel(net, heads.Point(8, 3), channel=channels.AnnotatorConfusion(2, 3))
    return model, LabelledData(x, vote(drawn, 3), crowd=several_masks(drawn))


def compare(folder: Path) -> None:
    """Twenty steps of every case; figures of models nobody has trained."""
    normed(folder)
    found = {}
    here = _distributed.ranks(torch.device("cpu"))
    for name, build in CASES.items():
        model, data, options = build()
        data, model = wide(data), model.double()
        scores = {size: evaluate(model, data, batch_size=size, ranks=here) for size in (3, 16, 1000)}
        run = fit(model, data, valid=data, **{"batch_size": 16, "steps": 20, "device": "cpu", **options})
        found[name] = {"scores": scores, "history": run.history, "best": run.best_epoch}
        if RANK == 0:
            save_file({k: v.contiguous() for k, v in run.procedure.state_dict().items()}, folder / name)
    if RANK == 0:
        (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


def slow(step: int, steps: int) -> float:
    time.sleep(float(os.environ.get("SLOW", "0")))
    return 1.0


def long(folder: Path) -> None:
    """A run to be disturbed; only the first process may see the folder."""
    out = folder / "run" if RANK == 0 else folder / "nobody"
    fit(
        network(),
        problem(60),
        schedule=slow,
        epochs=4,
        batch_size=8,
        device="cpu",
        out=out,
        checkpoint_every=2,
    )


def normed(folder: Path) -> None:
    """Batch norm, and what is said about it."""
    model = network()
    model.backbone = nn.Sequential(model.backbone, nn.BatchNorm1d(8))
    try:
        fit(model, problem(20), epochs=1, device="cpu")
    except DubitoError as error:
        (folder / f"said {RANK}").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"compare": compare, "long": long}[sys.argv[1]](Path(sys.argv[2]))
