"""Large jobs in a process of their own: ``python big_jobs.py NAME FOLDER``; its memory is measured from outside.

segmentation   images of 512 x 512 pixels with 21 classes, cross-entropy and a heteroscedastic head
classes        1,000 classes and 200 annotators over a pool of low rank
crowd          10 million labels of a crowd to a consensus
soak           100,000 steps of a small run that logs, evaluates and saves
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import torch
from torch import nn

from dubito import backbones, channels, crowd, heads, noise
from dubito.data import LabelledData, Triplets
from dubito.model import Model
from dubito.segmentation import Pixels, SegmentationModel
from dubito.train import fit


def _source(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def segmentation(folder: str) -> None:
    """A step on two images for either head: every pixel is a classification of its own."""
    x = torch.randint(0, 256, (2, 3, 512, 512), generator=_source(), dtype=torch.uint8)
    y = torch.randint(0, 21, (2, 512, 512), generator=_source(1))
    y[:, :40] = -100
    for name, head in (("point", heads.Point), ("diagonal", heads.Diagonal)):
        network = backbones.EncoderDecoder(3, generator=_source(2))
        model = SegmentationModel(network, head(64, 21, generator=_source(3)))
        data = LabelledData(x, y, mean=(0.5,) * 3, std=(0.25,) * 3)
        options = {"epochs": 1, "batch_size": 2, "device": "cpu", "progress": False, "procedure": Pixels}
        fit(model, data, out=f"{folder}-{name}", **options)


def classes(folder: str) -> None:
    """Three annotators for each of 4,000 items, in batches of 256."""
    n, people = 4000, 200
    item = torch.arange(n).repeat_interleave(3)
    label = torch.randint(0, 1000, (3 * n,), generator=_source(1))
    given = Triplets(item, torch.randint(0, people, (3 * n,), generator=_source(2)), label)
    data = LabelledData(torch.randn(n, 64, generator=_source()), torch.full((n,), -1), crowd=given)
    channel = channels.PooledConfusion(people, 1000, rank=4, generator=_source(4))
    model = Model(nn.Identity(), heads.Point(64, 1000, generator=_source(3)), channel=channel)
    fit(model, data, epochs=1, batch_size=256, device="cpu", progress=False, out=folder)


def many_labels(folder: str) -> None:
    """Two million items with five labels each, ten classes, a thousand annotators, to a consensus."""
    n, each = 2_000_000, 5
    truth = torch.randint(0, 10, (n,), generator=_source(), dtype=torch.int32)
    item = torch.arange(n, dtype=torch.int32).repeat_interleave(each)
    annotator = (torch.randint(0, 200, (n * each,), generator=_source(1), dtype=torch.int32) * each).add_(
        torch.arange(each, dtype=torch.int32).repeat(n)
    )
    wrong = torch.rand(n * each, generator=_source(2)) < 0.3
    label = truth.repeat_interleave(each)
    label[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=_source(3), dtype=torch.int32)
    labels = crowd.CrowdLabels(item, annotator, label, classes=10)
    del item, annotator, label, wrong
    found = crowd.aggregate(labels, os.environ.get("METHOD", "auto"), iterations=20)
    right = (found.codes == truth).float().mean().item()
    assert right > 0.9, right


def soak(folder: str) -> None:
    """A small network with noise, an average of weights, evaluation each epoch and a checkpoint every 500 steps."""
    n, steps = 6400, int(os.environ.get("STEPS", "100000"))
    x = torch.randn(n, 6, generator=_source())
    y = noise.corrupt((x[:, 0] > 0).long() + (x[:, 1] > 0).long(), noise.resample(3, 0.2), _source(1))
    body = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1))
    model = Model(body, heads.Point(16, 3, generator=_source(2)))
    data, valid = LabelledData(x, y).split(n - 640, 640, seed=0)
    options = {"steps": steps, "batch_size": 64, "ema": 0.99, "checkpoint_every": 500, "evaluate_every": 5}
    fit(model, data, valid=valid, seed=3, device="cpu", progress=False, out=folder, **options)


JOBS: dict[str, Callable[[str], None]] = {
    "segmentation": segmentation,
    "classes": classes,
    "crowd": many_labels,
    "soak": soak,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    JOBS[sys.argv[1]](sys.argv[2])
