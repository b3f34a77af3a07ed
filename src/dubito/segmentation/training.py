"""The networks of a run on pixels: what one is made from, and how it is trained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import optim
from .._loss_calls import unwrap
from .._random import generator
from ..backbones import build
from ..channels import AnnotatorConfusion
from ..data import LabelledData
from ..errors import DubitoError
from ..losses import bi_tempered
from ..methods import parse
from ..procedures import Plain
from ..train import Run
from ..train import fit as train
from .augment import scale_crop_flip
from .losses import Pixels
from .model import SegmentationModel

BATCH, RATE, DECAY = 8, 1e-3, 1e-4
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
    matrices: Tensor | None = None,
) -> Run[SegmentationModel]:
    """Train one network; a run that is in `out` goes on where it stopped.

    `matrices` (R, K, K) are where learned ones of annotators start, unless the method names a start of its own: a
    run has too few steps to bring them from one start for all to where they belong.
    """
    model, stages = make(setting, method)
    channel = model.channel
    if matrices is not None and isinstance(channel, AnnotatorConfusion) and channel.init == "diagonal":
        model.channel = AnnotatorConfusion(
            len(matrices), channel.num_classes, init=matrices, sparse=channel.sparse
        )
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


def labelled(data: LabelledData) -> LabelledData:
    """The images of which some pixel has a label: the others teach and judge nothing."""
    some = (data.labels >= 0).flatten(1).any(1)
    return data if bool(some.all()) else data.subset(some.nonzero().flatten())
