"""What is said of images of any size: scores of the files that are written, large images in windows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from dubito import heads
from dubito._product.tasks import FitJob
from dubito.data import pixel_images, read_mask
from dubito.segmentation import SegmentationModel, command, outputs
from dubito.segmentation.shapes import shapes


def write(folder, sizes, seed=0):
    """One scene of each size, and its mask; returns the masks."""
    drawn = {}
    for i, size in enumerate(sizes):
        data = shapes(1, size=size, seed=seed + i)
        for kind, picture in (
            ("photos", data.inputs[0].permute(1, 2, 0).numpy()),
            ("masks", data.labels[0].numpy().astype(np.uint8)),
        ):
            (folder / kind).mkdir(exist_ok=True)
            Image.fromarray(picture).save(folder / kind / f"s{i}.png")
        drawn[f"s{i}"] = data.labels[0].numpy()
    return drawn


def test_the_scores_of_a_run_are_those_of_the_masks_that_it_writes(tmp_path):
    """Counted naively from the files; on a canvas of one size, small images would be seen as they never are."""
    truth = write(tmp_path, [(16, 20), (32, 24), (20, 40), (48, 48), (16, 16), (40, 20)] * 2)
    out = tmp_path / "run"
    job = FitJob(
        tmp_path / "photos", out, masks=tmp_path / "masks", method="ce", epochs=4, folds=1, device="cpu"
    )
    command.fit(job, lambda line: None)
    rows = [line.split(",") for line in (out / "images.csv").read_text().splitlines()[1:]]
    counts = np.zeros((4, 4), np.int64)
    for name, part, *_ in rows:
        if part == "held out":
            np.add.at(counts, (truth[name], read_mask(out / f"masks/{name}.png")), 1)
    either = counts.sum(0) + counts.sum(1) - counts.diagonal()
    found = json.loads((out / "metrics.json").read_text())
    assert found["mean_iou"] == pytest.approx(
        (counts.diagonal() / either.clip(1))[either > 0].mean(), abs=1e-12
    )
    assert found["accuracy"] == counts.diagonal().sum() / counts.sum()


def test_a_large_image_is_seen_in_windows_with_the_same_numbers(tmp_path, monkeypatch):
    """A network that sees 2 pixels around each, windows of 20 x 20 that see 4 beyond what is kept."""
    write(tmp_path, [(50, 37), (20, 20), (9, 70)])
    g = torch.Generator().manual_seed(0)
    seen = []

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 6, 5, padding=2)

        def forward(self, x):
            seen.append(x.shape[-2] * x.shape[-1])
            return self.conv(x)

    model = SegmentationModel(Network(), heads.Diagonal(6, 4, generator=g), temperature=0.5)
    data = pixel_images(tmp_path / "photos", 4)
    whole = list(outputs.judge(model, data))
    for name, value in (("WINDOW", 400), ("OVERLAP", 4), ("_STEP", 4)):
        monkeypatch.setattr(outputs, name, value)
    seen.clear()
    for a, b in zip(whole, outputs.judge(model, data), strict=True):
        assert torch.equal(a.mask, b.mask)
        for this, that in ((a.log_p, b.log_p), (a.entropy, b.entropy), (a.deviation, b.deviation)):
            assert torch.allclose(this, that, atol=1e-5)
    assert len(seen) > 2 * 3
    assert max(seen) <= 400


@pytest.mark.parametrize("length", [1, 33, 1792, 1793, 5000, 100_000])
def test_windows_keep_every_row_once_and_begin_on_the_coarsest_grid(length):
    rows, _ = outputs.windows(length, 1 << 22)
    assert [a for a, _, _, _ in rows] == [0, *(b for _, b, _, _ in rows[:-1])]
    assert rows[-1][1] == length
    for a, b, top, bottom in rows:
        assert top == max(0, a - 128)
        assert bottom == min(length, b + 128)
        assert top % 32 == 0
        assert (bottom - top) ** 2 <= 1 << 22
