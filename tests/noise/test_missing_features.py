"""Features missing not at random, and a hidden feature as the source of input-dependent label noise."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch

from dubito import noise
from dubito.errors import DubitoError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("strength", [0.0, 1.0, 4.0])
def test_values_go_missing_by_their_own_value(strength):
    x = torch.randn(20_000, 2, generator=seeded(1), dtype=torch.float64) * 3 + 5
    seen, missing = noise.missing_not_at_random(x, 0.3, seeded(), strength=strength, fill=-7.0)
    assert bool((seen[missing] == -7).all())
    assert torch.equal(seen[~missing], x[~missing])
    z = (x - x.mean(0)) / x.std(0, correction=0)
    low, high = z < -0.5, z > 0.5
    for j in range(2):
        # The log-odds rise by `strength` per deviation: check the rate in thin slices of the value.
        share = missing[:, j].double().mean()
        assert float(share) == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 20_000))
        odds = []
        for centre in (-1.0, 0.0, 1.0):
            rate = missing[(z[:, j] - centre).abs() < 0.1, j].double().mean().clamp(1e-4, 1 - 1e-4)
            odds.append(float(torch.logit(rate)))
        if strength == 1.0:
            assert odds[1] - odds[0] == pytest.approx(1.0, abs=0.35)
            assert odds[2] - odds[1] == pytest.approx(1.0, abs=0.35)
        gap = float(missing[high[:, j], j].double().mean() - missing[low[:, j], j].double().mean())
        assert (gap > 0.2) if strength else (abs(gap) < 0.04)


def test_only_the_chosen_columns_go_missing():
    x = torch.randn(500, 3, generator=seeded(1))
    _, missing = noise.missing_not_at_random(x, 0.5, seeded(), columns=[1])
    assert missing.any(0).tolist() == [False, True, False]
    _, none = noise.missing_not_at_random(x, 0.0, seeded())
    nothing, all_ = noise.missing_not_at_random(x, 1.0, seeded())
    assert bool((nothing == 0).all())
    assert not none.any()
    assert all_.all()


@pytest.mark.paper("collier2020 fig. 5")
def test_missing_values_make_label_noise_that_depends_on_the_input():
    """The label is a plain function of two features; hide high values of one and noise appears, unevenly."""
    x = torch.randn(40_000, 2, generator=seeded(1), dtype=torch.float64)
    y = (x[:, 0] + x[:, 1] > 0).long()
    seen, missing = noise.missing_not_at_random(x, 0.5, seeded(2), columns=[1])
    hidden = missing[:, 1]
    rates = []
    for low in (-2.0, -1.0, 0.0, 1.0):
        part = y[hidden & (seen[:, 0] > low) & (seen[:, 0] <= low + 1)].double().mean()
        rates.append(float(torch.minimum(part, 1 - part)))
    # Where the seen feature is very negative the hidden one decides; where it is high nothing is in doubt.
    assert rates[0] > 0.15
    assert rates[3] < 0.01
    complete = y[~hidden] == (seen[~hidden].sum(-1) > 0).long()
    assert bool(complete.all())


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 8", "collier2020 fig. 5")
def test_a_hidden_feature_gives_the_binary_heteroscedastic_classifier():
    """Scorecard 1: noise equals Phi(-|f|/s) transcribed, and wrong labels occur at that rate everywhere."""
    task = noise.hidden_feature_task(40_000, seeded(), num_features=3, slope=1.0, base=0.5)
    x = task.features
    naive = [
        0.5 * math.erfc(abs(2 * a) / (0.5 * math.exp(b)) / math.sqrt(2)) for a, b in x[:500, :2].tolist()
    ]
    torch.testing.assert_close(
        task.noise[:500], torch.tensor(naive, dtype=torch.float64), rtol=1e-9, atol=1e-300
    )
    assert torch.equal(task.labels, (x[:, 0] + task.hidden > 0).long())
    wrong = (task.labels != task.clean).double()
    for part in task.noise.argsort().chunk(10):
        rate = task.noise[part]
        error = math.sqrt(float((rate * (1 - rate)).sum())) / len(part)
        assert float(wrong[part].mean()) == pytest.approx(float(rate.mean()), abs=4 * error + 1e-12)
    # The noise depends on the input: along x_2 at the same x_1, from almost none to nearly a coin.
    near = (x[:, 0].abs() > 0.3) & (x[:, 0].abs() < 0.6)
    calm, wild = near & (x[:, 1] < -1), near & (x[:, 1] > 1)
    assert float(wrong[calm].mean()) < 0.01
    assert float(wrong[wild].mean()) > 0.2
    # Hidden and seen features depend on each other, as they must.
    assert float(torch.corrcoef(torch.stack([x[:, 0], task.hidden]))[0, 1]) > 0.5


def test_the_usual_spread():
    task = noise.hidden_feature_task(200, seeded(1))
    assert task.features.shape == (200, 2)
    expected = (
        torch.special.erfc(8 * task.features[:, 0].abs() * (-task.features[:, 1]).exp() / math.sqrt(2)) / 2
    )
    torch.testing.assert_close(task.noise, expected, rtol=1e-9, atol=1e-300)


def test_without_slope_the_scale_is_constant():
    task = noise.hidden_feature_task(1_000, seeded(), slope=0.0, base=0.8)
    torch.testing.assert_close(task.noise, torch.special.ndtr(-(2 * task.features[:, 0]).abs() / 0.8))
    assert noise.hidden_feature_task(0, seeded()).labels.shape == (0,)


@pytest.mark.rel
def test_no_global_generator_is_touched_and_no_input_changed():
    """Scorecard 24."""
    x = torch.randn(20, 3, generator=seeded())
    kept = x.clone()
    states = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    first = noise.missing_not_at_random(x, 0.5, seeded(3))
    again = noise.missing_not_at_random(x.numpy(), 0.5, seeded(3))
    noise.hidden_feature_task(10, seeded())
    assert torch.equal(first[1], again[1])
    assert torch.equal(states[0], torch.random.get_rng_state())
    assert (states[1] == np.random.get_state()[1]).all()
    assert states[2] == random.getstate()
    assert torch.equal(x, kept)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: noise.missing_not_at_random(torch.zeros(3), 0.5, seeded()), "axis of items"),
        (lambda: noise.missing_not_at_random(torch.full((3, 2), math.inf), 0.5, seeded()), "not finite"),
        (lambda: noise.missing_not_at_random(torch.zeros(3, 2), 1.5, seeded()), "rate"),
        (lambda: noise.missing_not_at_random(torch.zeros(3, 2), 0.5, seeded(), columns=[2]), "columns"),
        (
            lambda: noise.missing_not_at_random(torch.zeros(3, 2), 0.5, seeded(), strength=math.inf),
            "strength",
        ),
        (lambda: noise.missing_not_at_random(torch.zeros(3, 2), 0.5, None), "torch generator"),
        (lambda: noise.hidden_feature_task(5, seeded(), num_features=1), "num_features"),
        (lambda: noise.hidden_feature_task(5, seeded(), base=0.0), "base"),
        (lambda: noise.hidden_feature_task(5, seeded(), slope=math.nan), "slope"),
        (lambda: noise.hidden_feature_task(-1, seeded()), "num_items"),
    ],
)
def test_bad_input_is_refused(call, word):
    """Scorecard 13."""
    with pytest.raises(DubitoError, match=word):
        call()
