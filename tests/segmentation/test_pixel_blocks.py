"""How many masks are worked on at a time, and that a single part is not computed twice."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from dubito import heads
from dubito._batches import Batches
from dubito.data import LabelledData
from dubito.segmentation import Pixels, SegmentationModel
from dubito.segmentation import losses as module
from dubito.segmentation import model as pixel_model
from dubito.segmentation.pictures import variance_maps


@pytest.mark.parametrize(
    ("size", "classes", "upsample", "rank", "masks"),
    [
        ((64, 64), 8, "latent", 0, 2048),
        ((64, 64), 8, "latent", 3, 512),
        ((64, 64), 8, "log_probs", 3, 2048),
        ((64, 64), 8, "features", 0, 512),
        ((1, 1), 1, "latent", 0, 1 << 26),
        ((1 << 14, 1 << 13), 1, "latent", 0, 1),
    ],
)
def test_masks_at_a_time(size, classes, upsample, rank, masks):
    """2^26 numbers: pixels times classes, with their factors, or times features if these are more."""
    model = SimpleNamespace(upsample=upsample, num_classes=classes, head=SimpleNamespace(rank=rank))
    assert pixel_model.masks_at_a_time(model, torch.empty(2, 3, 3, 32), size) == masks


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_one_part_is_not_computed_twice(monkeypatch, parts):
    seen, again = [], module.checkpoint
    monkeypatch.setattr(
        module, "checkpoint", lambda *given, **named: seen.append(1) or again(*given, **named)
    )
    monkeypatch.setattr(module, "masks_at_a_time", lambda *_: -(-6 // parts))
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 3, 4, 4, generator=g), torch.randint(3, (6, 4, 4), generator=g)
    network = nn.Conv2d(3, 5, 1)
    model = SegmentationModel(network, heads.Point(5, 3, generator=g))
    loss = Pixels(model)(Batches(LabelledData(x, y))(torch.arange(6)), lambda purpose: g)
    loss.backward()
    assert len(seen) == (0 if parts == 1 else parts)
    assert bool(network.weight.grad.any())


@pytest.mark.parametrize("upsample", ["latent", "features"])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("head", [heads.PreLogit, heads.Diagonal, heads.Point, heads.LowRank])
def test_a_mask_in_stripes_has_the_loss_and_gradients_of_a_whole_one(
    monkeypatch, head, align_corners, upsample
):
    """Odd sizes, from 4 x 5 features to 11 x 9 pixels, 1, 2 or all rows at a time."""
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(1, 3, 11, 9, generator=g), torch.randint(4, (1, 11, 9), generator=g)
    y[0, 3:5] = -100
    network = nn.Sequential(nn.AdaptiveAvgPool2d((4, 5)), nn.Conv2d(3, 6, 1))
    extra = {"rank": 2} if head in (heads.PreLogit, heads.LowRank) else {}
    made = head(6, 4, generator=g, **extra)
    model = SegmentationModel(network, made, temperature=0.5, upsample=upsample, align_corners=align_corners)
    found, seen = [], []
    latent_of = SegmentationModel.latent_of
    monkeypatch.setattr(
        SegmentationModel,
        "latent_of",
        lambda self, f, size, rows=None: seen.append(rows) or latent_of(self, f, size, rows),
    )
    for elements in (1 << 26, 2 * 9 * 4, 1):
        monkeypatch.setattr(pixel_model, "ELEMENTS", elements)
        model.zero_grad()
        batch = Batches(LabelledData(x, y))(torch.arange(1))
        loss = Pixels(model)(batch, lambda purpose: torch.Generator().manual_seed(7))
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert (10, 11) in seen
    for other in found[1:]:
        for a, b in zip(found[0], other):
            assert torch.allclose(a, b, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("head", [heads.PreLogit, heads.Diagonal, heads.Point])
@pytest.mark.parametrize("upsample", pixel_model.UPSAMPLE)
def test_predictions_and_variances_never_hold_the_latent_of_all_images(monkeypatch, head, upsample):
    """Two images of 12 x 10 pixels: with room for 400 numbers no latent at full size has more, and none changes."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 12, 10, generator=g)
    network = nn.Sequential(nn.AdaptiveAvgPool2d((6, 5)), nn.Conv2d(3, 6, 1))
    extra = {"rank": 2} if head is heads.PreLogit else {}
    model = SegmentationModel(
        network, head(6, 4, generator=g, **extra), temperature=0.5, upsample=upsample
    ).eval()
    with torch.no_grad():
        whole, variance = model(x), variance_maps(model, x, samples=64)
    monkeypatch.setattr(pixel_model, "ELEMENTS", 400)
    monkeypatch.setattr(pixel_model, "COPIES", 1)
    sizes, latent_of = [], SegmentationModel.latent_of

    def seen(self, *given):
        found = latent_of(self, *given)
        sizes.append(max(part.numel() for part in found if part is not None))
        return found

    monkeypatch.setattr(SegmentationModel, "latent_of", seen)
    with torch.no_grad():
        assert torch.allclose(model(x), whole, atol=1e-5)
        again = variance_maps(model, x, samples=64)
    assert (again is None and variance is None) or torch.allclose(again, variance, atol=1e-5)
    assert len(sizes) > 1
    # Of two images; a part is one image at low resolution, or two rows of it, at least.
    assert (
        max(sizes) <= {heads.PreLogit: 2 * 6 * 5 * 4 * 8, heads.Diagonal: 2 * 12 * 10 * 4}.get(head, 960) / 2
    )
