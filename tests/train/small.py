"""Small problems and networks for the tests of the loop, and the loop written out by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dubito import channels, heads, noise
from dubito._random import permutation
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData, Triplets
from dubito.model import Model
from dubito.segmentation import SegmentationModel, several_masks

PACE = {"seconds": 0.0}  # that a run sleeps at each step, so that a signal meets it before it ends


def paced(step: int, steps: int) -> float:
    """A schedule of one rate that takes its time."""
    time.sleep(PACE["seconds"])
    return 1.0


def problem(n: int = 96, classes: int = 3, seed: int = 0, rate: float = 0.2) -> LabelledData:
    """Gaussian features whose first columns say the class, with labels resampled at a rate."""
    g = torch.Generator().manual_seed(seed)
    clean = torch.randint(0, classes, (n,), generator=g)
    x = torch.randn(n, 6, generator=g)
    x[torch.arange(n), clean] += 2
    return LabelledData(x, noise.corrupt(clean, noise.resample(classes, rate), g), clean=clean)


def network(
    classes: int = 3, *, dropout: float = 0.0, seed: int = 0, width: int = 8, **options: Any
) -> Model:
    """Two layers, started from a generator of their own."""
    g = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        layers: list[nn.Module] = [nn.Linear(6, width), nn.Tanh()]
    if dropout:
        layers.append(nn.Dropout(dropout))
    backbone = nn.Sequential(*layers)
    with torch.no_grad():
        for p in backbone.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / 3)
    head = options.pop("head", heads.Point)
    return Model(backbone, head(width, classes, generator=g), **options)


def crowd(n: int = 40, people: int = 4, classes: int = 3, seed: int = 0) -> LabelledData:
    """Examples with zero to `people` labels each."""
    data = problem(n, classes, seed)
    g = torch.Generator().manual_seed(seed + 1)
    item, annotator = (torch.rand(n, people, generator=g) < 0.6).nonzero().T
    clean = data.clean
    assert clean is not None
    label = torch.where(
        torch.rand(len(item), generator=g) < 0.7,
        clean[item],
        torch.randint(0, classes, (len(item),), generator=g),
    )
    order = torch.randperm(len(item), generator=g)
    triplets = Triplets(item[order], annotator[order], label[order])
    return LabelledData(data.inputs, torch.full((n,), -1), clean=clean, crowd=triplets)


def pixels(n: int = 6, classes: int = 3) -> tuple[LabelledData, Model]:
    """Images with a label per pixel, some void, and a network that keeps their size."""
    g = torch.Generator().manual_seed(4)
    x = torch.randn(n, 2, 5, 4, generator=g)
    y = torch.randint(0, classes, (n, 5, 4), generator=g)
    y[0] = -100
    y[1, :2] = -1
    net = nn.Conv2d(2, 7, 3, padding=1)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / 3)
    return LabelledData(x, y), Model(nn.Sequential(net, ClassesLast()), heads.Point(7, classes, generator=g))


def scenes(
    n: int = 12, classes: int = 3, people: int = 0, size: int = 8
) -> tuple[LabelledData, SegmentationModel]:
    """Images of noisy masks, of one or of several annotators, and a small network of convolutions."""
    g = torch.Generator().manual_seed(6)
    truth = torch.randint(0, classes, (n, size // 4, size // 4), generator=g)
    truth = truth.repeat_interleave(4, 1).repeat_interleave(4, 2)
    x = (truth.float() + 0.3 * torch.randn(truth.shape, generator=g)).unsqueeze(1)
    shown = (n, max(people, 1), size, size)
    other = torch.randint(0, classes, shown, generator=g)
    masks = torch.where(torch.rand(shown, generator=g) < 0.2, other, truth.unsqueeze(1))
    masks[0, 0] = -100
    with torch.random.fork_rng():
        network = EncoderDecoder(1, widths=(4, 8), decoder=8, stride=2)
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / 3)
    head = (heads.Point if people else heads.Diagonal)(8, classes, generator=g)
    channel = channels.AnnotatorConfusion(people, classes) if people else None
    model = SegmentationModel(network, head, channel=channel, temperature=0.5)
    if not people:
        return LabelledData(x, masks[:, 0], clean=truth), model
    return LabelledData(x, torch.full_like(truth, -100), clean=truth, crowd=several_masks(masks)), model


class ClassesLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, -1)


def naive(
    model: Model,
    data: LabelledData,
    optimizer: Callable[..., torch.optim.Optimizer],
    *,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    factor: Callable[[int], float] = lambda step: 1.0,
    clip: float | None = None,
) -> Model:
    """The loop as anyone would write it, for cross-entropy on single labels."""
    opt = optimizer(model.parameters())
    rate, step = opt.param_groups[0]["lr"], 0
    inputs: Any = data.inputs
    for epoch in range(epochs):
        order = permutation(len(data), seed, epoch)
        for rows in order.split(batch_size):
            for group in opt.param_groups:
                group["lr"] = rate * factor(step)
            logits = model.head(model.backbone(inputs[rows])).mean
            opt.zero_grad()
            F.cross_entropy(logits, data.labels[rows], ignore_index=-1).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            opt.step()
            step += 1
    return model


def difference(one: nn.Module, two: nn.Module) -> float:
    """The largest difference of two state dicts."""
    a, b = one.state_dict(), two.state_dict()
    assert a.keys() == b.keys()
    return max(float((a[k].double() - b[k].double()).abs().max()) for k in a)
