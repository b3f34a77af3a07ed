"""Pixels on a GPU: the numbers of the CPU, the scores too, and memory far below that of samples."""

from __future__ import annotations

import copy

import pytest
import torch

from dubito import heads
from dubito._batches import Batch
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData
from dubito.segmentation import Pixels, SegmentationModel, score_masks
from dubito.segmentation.augment import scale_crop_flip

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def draw(purpose: str) -> torch.Generator:
    return torch.Generator(device="cuda").manual_seed(0)


def made(upsample: str, tau: float, classes: int = 11, **sizes) -> SegmentationModel:
    network = EncoderDecoder(3, **{"widths": (8, 16), "decoder": 16, **sizes})
    return SegmentationModel(
        network, heads.Diagonal(network.out_features, classes), upsample=upsample, temperature=tau
    )


def batch(n: int, height: int, width: int, classes: int) -> Batch:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(n, 3, height, width, generator=g)
    y = torch.randint(classes, (n, height, width), generator=g)
    y[:, :3] = -100
    return Batch(torch.arange(n), x, y, complete=True)


@pytest.mark.parametrize("tau", [0.05, 1.0, 5.0])
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_losses_and_gradients_are_those_of_the_cpu(upsample, tau, monkeypatch):
    """Float32 on both; the networks differ by the rounding of their convolutions alone."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    here = made(upsample, tau)
    there = copy.deepcopy(here).cuda()
    given = batch(2, 24, 32, 11)
    moved = Batch(given.positions.cuda(), given.x.cuda(), given.y.cuda(), complete=True)
    cpu = Pixels(here)(given, lambda purpose: torch.Generator().manual_seed(0))
    gpu = Pixels(there)(moved, draw)
    assert float(gpu.detach()) == pytest.approx(float(cpu.detach()), rel=1e-4)
    cpu.backward()
    gpu.backward()
    for (name, a), b in zip(here.named_parameters(), there.parameters()):
        off = float((a.grad - b.grad.cpu()).abs().max())
        assert off < 1e-2 * float(a.grad.abs().max()) + 1e-6, name


def test_masks_are_scored_alike():
    model = made("log_probs", 1.0)
    given = batch(5, 24, 32, 11)
    data = LabelledData(given.x, given.y)
    cpu = score_masks(model, data, batch_size=2).results()
    gpu = score_masks(model.cuda(), data.to("cuda"), batch_size=3).results()
    assert gpu["pixels"] == cpu["pixels"]
    assert gpu["log_likelihood"] == pytest.approx(cpu["log_likelihood"], abs=1e-3)
    assert gpu["mean_iou"] == pytest.approx(cpu["mean_iou"], abs=0.01)


def test_augmentation_is_that_of_the_cpu():
    """Masks to the pixel: what happens to an image does not depend on the device."""
    given = batch(6, 24, 32, 11)
    index = torch.arange(6)
    images, masks = scale_crop_flip(given.x, masks=given.y, index=index, seed=3, epoch=2, crop=(16, 20))
    x, y = scale_crop_flip(
        given.x.cuda(), masks=given.y.cuda(), index=index.cuda(), seed=3, epoch=2, crop=(16, 20)
    )
    assert float((masks != y.cpu()).float().mean()) < 1e-3
    torch.testing.assert_close(x.cpu(), images, atol=1e-3, rtol=1e-3)


@pytest.mark.rel
@pytest.mark.parametrize("upsample", ["log_probs", "latent", "features"])
def test_under_four_gigabytes(upsample):
    """Scorecard 33: a step on four 512 x 512 images with 21 classes, beyond the network, below 4 GB."""
    given = batch(4, 512, 512, 21)
    moved = Batch(given.positions.cuda(), given.x.cuda(), given.y.cuda(), complete=True)
    model = made(upsample, 1.0, 21, widths=(32, 64, 128, 256), decoder=64).cuda()
    procedure = Pixels(model)

    def network() -> None:
        model.backbone(moved.x).square().mean().backward()

    def whole() -> None:
        procedure(moved, draw).backward()

    peaks = []
    for work in (network, whole):
        work()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] - peaks[0] < 4e9
