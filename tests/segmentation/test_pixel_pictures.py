"""Pictures of masks and variances: colours, encodings, variance where the border is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from dubito import DubitoError, heads
from dubito.integrals import sampled_variance
from dubito.segmentation import SegmentationModel, pictures
from dubito.segmentation.shapes import shapes


class Given(nn.Module):
    """A network whose maps are given."""

    def __init__(self, maps):
        super().__init__()
        self.maps = nn.Parameter(maps)

    def forward(self, x):
        return self.maps.expand(len(x), *self.maps.shape[1:])


def test_variance_maps_are_those_of_the_latent():
    torch.manual_seed(0)
    model = SegmentationModel(Given(torch.randn(1, 5, 3, 4)), heads.Diagonal(5, 3), temperature=0.5).double()
    found = pictures.variance_maps(model, torch.zeros(2, 3, 3, 4, dtype=torch.float64), samples=4096)
    latent = model.latent(torch.zeros(1, 3, 3, 4, dtype=torch.float64))
    noise = torch.randn(20_000, 1, 3, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = sampled_variance(latent.mean, latent.scale, noise, temperature=0.5)
    assert found.shape == (2, 3, 4, 3)
    assert torch.allclose(found[:1], expected, atol=4e-3)
    assert pictures.variance_maps(model, torch.zeros(1, 3, 12, 16, dtype=torch.float64)).shape == (
        1,
        12,
        16,
        3,
    )


def test_a_model_without_noise_has_no_variance():
    model = SegmentationModel(Given(torch.zeros(1, 5, 3, 4)), heads.Point(5, 3))
    assert pictures.variance_maps(model, torch.zeros(1, 3, 3, 4)) is None
    with pytest.raises(DubitoError, match="of images"):
        pictures.variance_maps(model, torch.zeros(3, 3, 4))


def test_colours_and_void():
    mask = torch.tensor([[0, 1], [-100, 255]])
    picture = pictures.coloured(mask, 2)
    assert picture.dtype == np.uint8
    assert (picture[0, 0] == pictures.class_colours(2)[0]).all()
    assert (picture[1] == pictures.VOID_COLOUR).all()


def test_encodings_come_back():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 256, (9, 7)).astype(np.uint8)
    assert (pictures.decode(pictures.encode(numbers)) == numbers).all()
    variance = rng.random((9, 7)) / 4
    back = pictures.decode_deviation(pictures.encode_deviation(variance))
    assert np.abs(back - np.sqrt(variance)).max() <= 0.5 / 255
    for text in ("no base 64 §", "aGVsbG8="):
        with pytest.raises(DubitoError, match="not a stored picture"):
            pictures.decode(text)


def test_heat_rises_from_dark_to_light():
    picture = pictures.heat(np.array([[0.0, 0.5, 1.0, 9.0]]), top=1.0).sum(-1)[0]
    assert picture[0] < picture[1] < picture[2] == picture[3]


def test_photo_takes_grey_and_colour():
    grey = torch.full((1, 2, 3), 0.5)
    assert pictures.photo(grey).shape == (2, 3, 3)
    assert (pictures.photo(torch.full((3, 2, 3), 7, dtype=torch.uint8)) == 7).all()


def test_grid_has_a_panel_per_picture():
    one = np.zeros((4, 5, 3), np.uint8)
    figure = pictures.grid(
        [[one, (one, "word")], [None, one]], columns=["a", "b"], legend=[("x", (1, 2, 3))], scale=(0.5, "sd")
    )
    assert [len(ax.images) for ax in figure.axes[:4]] == [1, 1, 0, 1]
    assert figure.legends


def test_shapes_are_keyed_and_labelled():
    first, again, other = shapes(6), shapes(3), shapes(6, seed=1)
    assert torch.equal(first.inputs[:3], again.inputs)
    assert torch.equal(first.labels[:3], again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert first.labels.unique().tolist() == [0, 1, 2, 3]
    # Classes can be told apart by colour away from borders.
    x, y = shapes(40, noise=0.02).inputs.double(), shapes(40, noise=0.02).labels
    means = torch.stack([x.movedim(1, -1)[y == k].mean(0) for k in range(4)])
    assert torch.cdist(means, means).add(torch.eye(4) * 1e9).min() > 30
    with pytest.raises(DubitoError, match="no such scenes"):
        shapes(0)
