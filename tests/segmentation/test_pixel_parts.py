"""Losses of pixels part by part: the likelihood of one class, seeds of parts, how many masks fit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from test_pixel_losses import K, images, model
from torch import Tensor, nn

from dubito import heads, losses, targets
from dubito._batches import Batches
from dubito.data import LabelledData
from dubito.model import example_losses
from dubito.segmentation import Pixels, several_masks
from dubito.segmentation import model as pixel_model
from dubito.segmentation.model import masks_at_a_time

LOW_RANK = partial(heads.LowRank, rank=2)
PRE_LOGIT = partial(heads.PreLogit, rank=2)


def seeded(seed: int = 1000) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def per_pixel(made: nn.Module, x: Tensor, y: Tensor, seed: int = 1000, **options: object) -> Tensor:
    batch = Batches(LabelledData(x, y))(torch.arange(len(x)))
    return Pixels(made, **options).losses(made, batch, lambda _: seeded(seed)).detach()


@pytest.mark.parametrize("upsample", ["latent", "features", "log_probs"])
def test_each_pixel_has_the_likelihood_of_its_class(upsample):
    x, y = images()
    made = model(temperature=0.5, upsample=upsample)
    log_p, found = made(x).detach(), per_pixel(made, x, y)
    assert (y == 0).any()
    for place in np.ndindex(*y.shape):
        wanted = -float(log_p[place][y[place]]) if y[place] >= 0 else 0.0
        assert float(found[place]) == pytest.approx(wanted, abs=1e-5)


def test_a_link_of_ones_own_is_used():
    x, y = images()
    made = model(upsample="latent", link=lambda logits: (3 * logits).log_softmax(-1))
    log_p = (3 * made.latent(x).mean).log_softmax(-1).detach()
    wanted = -log_p.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(per_pixel(made, x, y), torch.where(y >= 0, wanted, 0.0))


def test_smoothed_labels_are_read_whole():
    x, y = images()
    made = model(temperature=0.5, upsample="latent")
    found = per_pixel(made, x, y, target=partial(targets.smooth, alpha=0.3))
    log_p = made(x).detach()
    weights = 0.7 * nn.functional.one_hot(y.clamp(min=0), K) + 0.3 / K
    torch.testing.assert_close(found, torch.where(y >= 0, -(weights * log_p).sum(-1), 0.0), atol=1e-5, rtol=0)


@pytest.mark.parametrize("seed", [1000, 2**63 - 1])
def test_every_part_draws_points_of_its_own(seed, monkeypatch):
    """Part i of a step draws with the step's seed plus i, so that no two parts share their points."""
    monkeypatch.setattr(pixel_model, "ELEMENTS", 1)
    x, y = images()
    made = model(LOW_RANK, temperature=0.5, samples=8, upsample="latent")
    found = per_pixel(made, x, y, seed)
    for i in range(len(x)):
        source = seeded((seed + i) % 2**63)
        wanted = example_losses(
            made, made.latent(x[i : i + 1]), y[i : i + 1].clamp(min=0), losses.nll, generator=source
        )
        torch.testing.assert_close(found[i], torch.where(y[i] >= 0, wanted[0].detach(), 0.0))


class Plain(nn.Module):
    """A head of the user's own, which says nothing of noise."""

    num_classes = K

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def forward(self, features: Tensor) -> heads.Latent:
        return heads.Latent(features[..., :K], None, None)


@pytest.mark.parametrize("head", [heads.Point, Plain])
def test_without_noise_nothing_is_drawn(head):
    def never(_: str) -> torch.Generator:
        raise AssertionError("drawn")

    x, y = images()
    made = model(head)
    batch = Batches(LabelledData(x, y))(torch.arange(4))
    assert Pixels(made).losses(made, batch, never).shape == y.shape


def test_a_batch_without_masks_costs_nothing():
    x, y = images()
    masks = torch.full((4, 2, *y.shape[1:]), -100)
    masks[0] = y[0]
    made = model()
    batch = Batches(LabelledData(x, y, crowd=several_masks(masks)))(torch.tensor([1, 2]))
    found = Pixels(made).losses(made, batch, lambda _: seeded())
    assert found.shape == (2, *y.shape[1:])
    assert float(found.detach().abs().sum()) == 0


@pytest.mark.parametrize(
    ("head", "upsample", "each"),
    [  # the largest map of one mask at full size: features (6), classes (3), or classes and two factors of each;
        # noise before the last layer has a factor per feature besides, here in maps of a quarter of the size
        (heads.Point, "features", 6),
        (heads.Diagonal, "latent", 3),
        (LOW_RANK, "features", 9),
        (LOW_RANK, "latent", 9),
        (LOW_RANK, "log_probs", 3),
        (PRE_LOGIT, "features", 27),
        (PRE_LOGIT, "latent", 27),
        (PRE_LOGIT, "log_probs", 27 / 4),
    ],
)
def test_as_many_masks_as_fit(head, upsample, each, monkeypatch):
    made = model(head, upsample=upsample)
    features = torch.zeros(2, 4, 5, 6)
    for room, masks in ((1, 1), (8 * 10 * each - 1, 1), (2 * 80 * each, 2), (7 * 80 * each + 1, 7)):
        monkeypatch.setattr(pixel_model, "ELEMENTS", room)
        assert masks_at_a_time(made, features, (8, 10)) == masks
    assert masks_at_a_time(made, features, (0, 10)) >= 1
