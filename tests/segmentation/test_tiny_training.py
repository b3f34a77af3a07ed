"""A tiny segmentation model learns on a CPU that labels are in doubt at borders."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dubito import heads, optim
from dubito.backbones import EncoderDecoder
from dubito.data import LabelledData
from dubito.links import predictive_variance
from dubito.segmentation import BorderHabits, Pixels, SegmentationModel, border_noise, resize, score_masks
from dubito.segmentation.scores import inner_border
from dubito.train import fit


def scenes(n: int, seed: int, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Grey rectangles of two kinds on a background, a little noise over everything."""
    g = torch.Generator().manual_seed(seed)
    images, masks = torch.zeros(n, 1, size, size), torch.zeros(n, size, size, dtype=torch.int64)
    for i in range(n):
        for kind in (1, 2):
            y, x = torch.randint(2, size - 14, (2,), generator=g).tolist()
            h, w = torch.randint(8, 14, (2,), generator=g).tolist()
            masks[i, y : y + h, x : x + w] = kind
    images[:, 0] = masks.float() - 1 + 0.2 * torch.randn(masks.shape, generator=g)
    return images, masks


@pytest.mark.paper("collier2020 fig. 4")
def test_variance_is_higher_at_borders():
    """Trained on masks with noisy borders: right about the truth, and more in doubt at borders than inside."""
    x, truth = scenes(32, seed=0)
    noisy = border_noise(truth, BorderHabits(grow=(-2.0, 2.0), shift=1.0), seed=0)
    data = LabelledData(x, noisy, clean=truth)
    network = EncoderDecoder(1, widths=(8, 16), decoder=16, stride=2)
    model = SegmentationModel(network, heads.Diagonal(16, 3), temperature=0.5)
    run = fit(
        model, data, procedure=Pixels, optimizer=partial(optim.adam, lr=5e-3), epochs=12, batch_size=8,
        device="cpu", evaluate_every=12,
    )  # fmt: skip
    new, masks = scenes(12, seed=1)
    scores = score_masks(run.model, LabelledData(new, masks)).results()
    assert scores["mean_iou"] > 0.7
    with torch.no_grad():
        latent = run.model.latent(new)
        variance = predictive_variance(latent.mean, latent.scale, temperature=0.5, samples=64)
        full = resize(variance, (32, 32)).sum(-1)
    near = inner_border(masks, 3, 1).any(1)
    far = ~inner_border(masks, 3, 3).any(1)
    near[:, 0] = near[:, -1] = False
    near[:, :, 0] = near[:, :, -1] = False
    assert float(full[near].mean()) > 2 * float(full[far].mean())
