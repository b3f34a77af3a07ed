"""Augmentation: equal to a naive loop, a function of (seed, epoch, index) only."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from dubito import DubitoError
from dubito.data.augment import apply, augment, center_crop, plan

IMAGES = torch.randint(0, 256, (40, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def naive(images, chosen, pad, window):
    out = []
    for image, (row, column, mirrored) in zip(F.pad(images, (pad,) * 4), chosen.tolist()):
        cut = image[:, row : row + window[0], column : column + window[1]]
        out.append(cut.flip(-1) if mirrored else cut)
    return torch.stack(out)


@pytest.mark.parametrize("pad", [0, 1, 3])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_equals_pad_cut_flip(pad, dtype):
    images = IMAGES.to(dtype)
    index = torch.arange(40)
    chosen = plan(index, seed=5, epoch=2, room=(2 * pad + 1, 2 * pad + 1))
    result = augment(images, index, seed=5, epoch=2, pad=pad)
    assert result.dtype == dtype
    assert torch.equal(result, naive(images, chosen, pad, (9, 7)))


def test_smaller_window():
    chosen = plan(torch.arange(40), seed=1, epoch=0, room=(6, 4))
    assert torch.equal(
        augment(IMAGES, torch.arange(40), seed=1, epoch=0, pad=1, size=6),
        naive(IMAGES, chosen, 1, (6, 6)),
    )
    assert torch.equal(center_crop(IMAGES, 5), IMAGES[:, :, 2:7, 1:6])


def test_depends_on_seed_epoch_and_index_only():
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    whole = augment(IMAGES, torch.arange(40), seed=3, epoch=8)
    pieces = [augment(IMAGES[part], part, seed=3, epoch=8) for part in order.split(7)]
    assert torch.equal(torch.cat(pieces), whole[order])
    tensors = augment(IMAGES, torch.arange(40), seed=torch.tensor(3), epoch=torch.tensor(8))
    assert torch.equal(tensors, whole)
    for other in ({"seed": 4, "epoch": 8}, {"seed": 3, "epoch": 9}):
        assert not torch.equal(augment(IMAGES, torch.arange(40), **other), whole)


def test_every_offset_and_flip_is_equally_likely_and_independent():
    chosen = plan(torch.arange(50_000), seed=0, epoch=0, room=(5, 5))
    cells = chosen[:, 0] * 10 + chosen[:, 1] * 2 + chosen[:, 2]
    counts = torch.bincount(cells, minlength=50).double()
    assert len(counts) == 50
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 96  # 49 degrees of freedom: 1e-4 beyond
    assert int(plan(torch.arange(100), seed=0, epoch=0, room=(5, 5), flip=False)[:, 2].sum()) == 0


def test_leaves_the_images_alone_and_compiles():
    before = IMAGES.clone()
    compiled = torch.compile(augment, fullgraph=True, backend="aot_eager")
    index, seed, epoch = torch.arange(40), torch.tensor(1), torch.tensor(2)
    assert torch.equal(
        compiled(IMAGES, index, seed=seed, epoch=epoch), augment(IMAGES, index, seed=1, epoch=2)
    )
    assert torch.equal(before, IMAGES)


def test_refuses_what_is_no_batch_of_images():
    with pytest.raises(DubitoError, match="a batch of images"):
        augment(IMAGES[0], torch.arange(3), seed=0, epoch=0)
    with pytest.raises(DubitoError, match="one index each"):
        augment(IMAGES, torch.arange(3), seed=0, epoch=0)
    with pytest.raises(DubitoError, match="no such crop"):
        augment(IMAGES, torch.arange(40), seed=0, epoch=0, pad=1, size=20)
    with pytest.raises(DubitoError, match="no such crop"):
        center_crop(IMAGES, 8)


@pytest.mark.gpu
def test_the_same_pixels_on_cuda_and_in_a_captured_graph():
    images, index = IMAGES.cuda(), torch.arange(40, device="cuda")
    seed, epoch = torch.tensor(3, device="cuda"), torch.tensor(0, device="cuda")
    augment(images, index, seed=seed, epoch=epoch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = augment(images, index, seed=seed, epoch=epoch)
    epoch.fill_(6)
    graph.replay()
    assert torch.equal(result.cpu(), augment(IMAGES, torch.arange(40), seed=3, epoch=6))


def test_planned_in_advance():
    table = plan(torch.arange(40), seed=0, epoch=1, room=(3, 3))
    batch = torch.tensor([4, 39, 0])
    looked_up = apply(IMAGES[batch], table[batch], pad=1, window=(9, 7))
    assert torch.equal(looked_up, augment(IMAGES[batch], batch, seed=0, epoch=1, pad=1))
