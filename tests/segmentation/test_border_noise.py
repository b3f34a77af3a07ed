"""Border noise: what each habit does to a shape whose truth is known, and what the draws depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dubito import DubitoError
from dubito.segmentation import BorderHabits, border_noise, simulate_masks
from dubito.segmentation.outlines import filled, outlines, simplified


def square(n: int = 1, size: int = 24) -> torch.Tensor:
    masks = torch.zeros(n, size, size, dtype=torch.int64)
    masks[:, 8:16, 8:16] = 1
    return masks


def blobs(n: int = 3) -> torch.Tensor:
    """Smooth regions of four classes, with void."""
    g = torch.Generator().manual_seed(0)
    coarse = torch.randn(n, 4, 6, 7, generator=g)
    masks = torch.nn.functional.interpolate(coarse, (42, 49), mode="bicubic").argmax(1)
    masks[:, :3] = -100
    return masks


def test_growth_by_distance():
    """Every pixel within two of the square, and none further; shrunk, those deeper than two."""
    grown = border_noise(square(), BorderHabits(grow=(2.0, 2.0)), seed=0)[0]
    shrunk = border_noise(square(), BorderHabits(grow=(-2.0, -2.0)), seed=0)[0]
    inside = square()[0].bool()
    places = inside.nonzero().double()
    everywhere = torch.cartesian_prod(torch.arange(24.0), torch.arange(24.0)).double()
    distance = torch.cdist(everywhere, places).amin(-1).reshape(24, 24)
    outside = (~inside).nonzero().double()
    depth = torch.cdist(everywhere, outside).amin(-1).reshape(24, 24)
    # The background grows and shrinks as well, before the smaller square is drawn over it.
    assert torch.equal(grown == 1, distance <= 2)
    assert torch.equal(shrunk == 1, depth > 2)


def test_a_shift_moves_the_object():
    found = border_noise(square(20), BorderHabits(shift=3.0), seed=1)
    corners = [tuple((m == 1).nonzero().amin(0).tolist()) for m in found]
    assert all(int((m == 1).sum()) == 64 for m in found)
    assert all(5 <= y <= 11 and 5 <= x <= 11 for y, x in corners)
    assert len(set(corners)) > 8


def test_polygons():
    """Corners of the polygon lie on the outline, what is dropped within the tolerance; none dropped without one."""
    y, x = np.mgrid[:41, :41]
    disc = (y - 20) ** 2 + (x - 20) ** 2 <= 300
    ring = disc & ~((y - 20) ** 2 + (x - 20) ** 2 <= 60)
    assert (filled(outlines(ring), ring.shape) == ring).all()
    assert (simplified(ring, 0.0) == ring).all()
    coarse = simplified(disc, 3.0)
    radius = np.sqrt((y - 20.0) ** 2 + (x - 20.0) ** 2)
    assert (coarse != disc).any()
    assert np.abs(radius[coarse != disc] - np.sqrt(300)).max() < 4.5


def test_only_borders_change():
    """Far from borders nothing changes; void stays, and nothing becomes void; classes stay known."""
    masks = blobs()
    habits = BorderHabits(grow=(-2.0, 2.0), shift=1.0, simplify=1.0)
    found = border_noise(masks, habits, seed=0)
    given = masks >= 0
    assert torch.equal(found == -100, masks == -100)
    share = float((found != masks)[given].float().mean())
    assert 0.02 < share < 0.4
    assert set(found.unique().tolist()) <= set(masks.unique().tolist())
    from dubito.segmentation.scores import inner_border

    far = ~inner_border(torch.where(given, masks, 4), 5, 6).any(1)
    assert not bool((found != masks)[far].any())


def test_draws_belong_to_images_and_annotators():
    masks, habits = blobs(4), BorderHabits(grow=(-2.0, 2.0), shift=2.0)
    whole = border_noise(masks, habits, seed=5)
    alone = border_noise(masks[2:3], habits, seed=5, index=torch.tensor([2]))
    assert torch.equal(whole[2:3], alone)
    assert not torch.equal(whole, border_noise(masks, habits, seed=6))
    assert not torch.equal(whole, border_noise(masks, habits, seed=5, annotator=1))


@pytest.mark.rel
def test_global_generators_untouched():
    """Scorecard 24: noise on borders draws nothing from the global generators, and leaves its input alone."""
    masks = blobs()
    before, state, numpys = masks.clone(), torch.get_rng_state(), np.random.get_state()[1].copy()
    simulate_masks(masks, [BorderHabits(grow=(-1.0, 1.0), missing=0.5)], seed=0)
    assert torch.equal(masks, before)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpys).all()


def test_annotators_have_habits():
    masks = square(40)
    people = [BorderHabits(), BorderHabits(grow=(1.0, 1.0)), BorderHabits(missing=0.5)]
    views = simulate_masks(masks, people, seed=3)
    assert views.shape == (40, 3, 24, 24)
    assert torch.equal(views[:, 0], masks)
    assert bool((views[:, 1] == 1).sum() > (masks == 1).sum())
    left_out = (views[:, 2] == -100).flatten(1).all(1)
    assert 8 < int(left_out.sum()) < 32
    assert torch.equal(views[~left_out, 2], masks[~left_out])


def test_an_object_that_would_vanish_stays():
    thin = torch.zeros(1, 10, 10, dtype=torch.int64)
    thin[:, 4] = 1
    assert torch.equal(border_noise(thin, BorderHabits(grow=(-3.0, -3.0)), seed=0) == 1, thin == 1)
    nothing = torch.full((1, 4, 4), -100)
    assert torch.equal(border_noise(nothing, BorderHabits(grow=(1.0, 1.0)), seed=0), nothing)
    assert border_noise(thin[:0], BorderHabits(), seed=0).shape == (0, 10, 10)


def test_refusals():
    with pytest.raises(DubitoError, match="range"):
        BorderHabits(grow=(1.0, -1.0))
    with pytest.raises(DubitoError, match="share"):
        BorderHabits(missing=1.5)
    with pytest.raises(DubitoError, match="whole numbers"):
        border_noise(torch.zeros(1, 2, 2), BorderHabits(), seed=0)
    with pytest.raises(DubitoError, match="no annotator"):
        simulate_masks(square(), [], seed=0)
