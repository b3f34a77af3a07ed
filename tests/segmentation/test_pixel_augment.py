"""Images and masks are moved together: alignment, void, exactness, independence of the batch."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from dubito import DubitoError, heads
from dubito._batches import Batches, augmented
from dubito.data import LabelledData, augment
from dubito.segmentation import Pixels, SegmentationModel, several_masks
from dubito.segmentation.augment import recolour, scale_crop_flip
from dubito.train import fit

H, W = 17, 23


def ramps(batch):
    """Channels that say in which row and column a pixel is, and a mask that numbers the pixels."""
    rows, columns = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    image = torch.stack([rows, columns]).double().expand(batch, 2, H, W)
    return image.contiguous(), (rows * W + columns).expand(batch, H, W).contiguous()


@pytest.mark.parametrize("crop", [(9, 11), (H, W), (40, 30)])
def test_image_and_mask_stay_aligned(crop):
    image, mask = ramps(200)
    x, y = scale_crop_flip(image, masks=mask, index=torch.arange(200), seed=3, epoch=1, crop=crop, fill=-7.0)
    seen = y >= 0
    assert x.shape == (200, 2, *crop)
    assert seen.any((1, 2)).all()
    row, column = x[:, 0][seen], x[:, 1][seen]
    # Bilinear reading of a ramp is the coordinate itself; the mask must show the nearest pixel.
    assert ((row - y[seen] // W).abs() <= 0.5 + 1e-5).all()
    assert ((column - y[seen] % W).abs() <= 0.5 + 1e-5).all()
    assert (x.movedim(1, -1)[~seen] == -7.0).all()
    assert (y[~seen] == -100).all()


def test_against_a_transcription():
    """Every pixel by the formula, one at a time."""
    image, mask = ramps(6)
    crop = (12, 9)
    _, y = scale_crop_flip(image, masks=mask, index=torch.arange(6), seed=0, epoch=0, crop=crop)
    scales = [0.5 + 0.25 * k for k in range(7)]
    for b in range(6):
        candidates = []
        for s in scales:
            rooms = [round(s * n) - c for n, c in zip((H, W), crop)]
            firsts = [range(min(0, r), max(0, r) + 1) for r in rooms]
            for top in firsts[0]:
                for left in firsts[1]:
                    for flipped in (False, True):
                        candidates.append((s, top, left, flipped))
        hits = [c for c in candidates if _looks(y[b], crop, *c)]
        assert hits, "no scale, window and flip explains the mask"


def _looks(y, crop, s, top, left, flipped):
    for i in range(0, crop[0], 3):
        for j in range(0, crop[1], 2):
            jj = crop[1] - 1 - j if flipped else j
            r, c = math.floor((i + top + 0.5) / s), math.floor((jj + left + 0.5) / s)
            expected = r * W + c if 0 <= r < H and 0 <= c < W else -100
            if int(y[i, j]) != expected:
                return False
    return True


def test_without_scaling_pixels_are_copied_bit_for_bit():
    x = torch.randint(0, 256, (20, 3, H, W), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y = torch.arange(20 * H * W).view(20, H, W)
    u, v = scale_crop_flip(x, masks=y, index=torch.arange(20), seed=0, epoch=0, crop=(8, 8), scales=(1, 1))
    assert (v >= 0).all()
    flat = x.permute(0, 2, 3, 1).reshape(-1, 3)
    assert torch.equal(u.permute(0, 2, 3, 1), flat[v])


def test_depends_on_seed_epoch_and_index_only():
    image, mask = ramps(5)
    whole = scale_crop_flip(image, masks=mask, index=torch.arange(5), seed=1, epoch=2)
    order = torch.tensor([4, 1])
    part = scale_crop_flip(image[order], masks=mask[order], index=order, seed=1, epoch=2)
    for a, b in zip(whole, part):
        assert torch.equal(a[order], b)
    assert not torch.equal(
        scale_crop_flip(image, masks=mask, index=torch.arange(5), seed=1, epoch=3)[1], whole[1]
    )
    assert torch.equal(scale_crop_flip(image, index=torch.arange(5), seed=1, epoch=2)[0], whole[0])


def test_several_masks_move_alike():
    image, mask = ramps(4)
    several = torch.stack([mask, mask + 1000], 1)
    _, one = scale_crop_flip(image, masks=mask, index=torch.arange(4), seed=0, epoch=0, crop=(10, 40))
    _, two = scale_crop_flip(image, masks=several, index=torch.arange(4), seed=0, epoch=0, crop=(10, 40))
    assert torch.equal(two[:, 0], one)
    assert torch.equal(two[:, 1], torch.where(one >= 0, one + 1000, -100))


def test_all_scales_windows_and_flips_occur():
    image, mask = ramps(2000)
    _, y = scale_crop_flip(
        image, masks=mask, index=torch.arange(2000), seed=0, epoch=0, crop=(5, 5), scales=(1, 2), levels=2
    )
    flipped = y[:, 0, 0] % W > y[:, 0, -1] % W
    doubled = (y[:, 0, 0] % W - y[:, 0, -1] % W).abs() < 4
    assert 0.45 < flipped.double().mean() < 0.55
    assert 0.45 < doubled.double().mean() < 0.55
    assert set((y[~doubled][:, 0, 0] // W).tolist()) == set(range(H - 4))


def test_compiles_as_one_graph():
    image, mask = ramps(3)
    call = torch.compile(
        lambda x, y, i: scale_crop_flip(x, masks=y, index=i, seed=0, epoch=1, crop=(9, 9)),
        fullgraph=True,
        backend="aot_eager",
    )
    index = torch.arange(3)
    for a, b in zip(
        call(image, mask, index),
        scale_crop_flip(image, masks=mask, index=index, seed=0, epoch=1, crop=(9, 9)),
    ):
        assert torch.equal(a, b)


def test_refusals():
    image, mask = ramps(2)
    index = torch.arange(2)
    with pytest.raises(DubitoError, match="masks do not fit"):
        scale_crop_flip(image, masks=mask[:, :-1], index=index, seed=0, epoch=0)
    with pytest.raises(DubitoError, match="one index each"):
        scale_crop_flip(image, masks=mask, index=index[:1], seed=0, epoch=0)
    with pytest.raises(DubitoError, match="no such scales"):
        scale_crop_flip(image, masks=mask, index=index, seed=0, epoch=0, scales=(2.0, 1.0))


def threshold_masks(n=16):
    """Images of features that lie across the image, and masks that are a threshold of them: no pixel may move."""
    source = torch.Generator().manual_seed(0)
    x = torch.randn(n, 2, 6, 8, generator=source)
    return LabelledData(x, (x[:, 0] > 0).long())


def noticed(seen):
    """The library's augmentation of whole images, which knows no masks; it notes whether it was called."""

    def move(images, seed, epoch, index):
        seen.append(len(images))
        return augment(images, index, seed=seed, epoch=epoch)

    return move


@pytest.mark.parametrize("several", [False, True])
def test_an_augmentation_that_leaves_the_masks_is_refused(several):
    """Before anything is called: also with masks of several annotators, whose own labels are in the crowd."""
    data, seen = threshold_masks(), []
    if several:
        data = replace(data, crowd=several_masks(data.labels.unsqueeze(1)))
    model = SegmentationModel(nn.Conv2d(2, 4, 1), heads.Point(4, 2))
    for move in (augment, noticed(seen), partial(noticed(seen))):
        with pytest.raises(
            DubitoError, match=r"would stay where it is .* at data.labels of shape \(16, .*recolour"
        ):
            fit(model, data, procedure=Pixels, augment=move, progress=False)
    assert seen == []
    fit(model, data, procedure=Pixels, epochs=1, augment=scale_crop_flip, progress=False)


def darker(images, seed, epoch, index, by=0.5):
    return images - by


def test_colours_may_change_under_the_masks(tmp_path):
    """The masks stay those of their images, and the run can be stored."""
    data = threshold_masks()
    batch = Batches(data)(torch.arange(16))
    moved = augmented(batch, partial(recolour, by=darker), seed=0, epoch=0)
    assert torch.equal(moved.x, batch.x - 0.5)
    assert torch.equal(moved.y, (moved.x[:, 0] > -0.5).long())
    model = SegmentationModel(nn.Conv2d(2, 4, 1), heads.Point(4, 2))
    change = partial(recolour, by=partial(darker, by=0.1))
    run = fit(model, data, procedure=Pixels, augment=change, epochs=1, out=tmp_path / "run", progress=False)
    assert run.steps == 1
    with pytest.raises(DubitoError, match=r"moves pixels.*expected images of \(6, 8\), got \(8, 6\)"):
        augmented(batch, partial(recolour, by=turned), seed=0, epoch=0)


def turned(images, seed, epoch, index):
    return images.mT
