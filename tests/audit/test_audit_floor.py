"""Very small probabilities: what a network says of them counts, a counted zero does not."""

from __future__ import annotations

import numpy as np

from dubito import audit
from dubito._audit.likelihood import centred_logs


def test_a_networks_small_numbers_stay_apart_and_counted_zeros_do_not_shout():
    spoken = np.array([[1 - 3e-6, 2e-6, 1e-6], [1 - 3e-5, 2e-5, 1e-5]])
    assert len(np.unique(centred_logs(spoken).round(6))) == 6
    counted = np.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0]])
    assert np.ptp(centred_logs(counted)[0]) < np.log(1 / 0.05)
    rounded = np.array([[1.0, 0.0, 0.0], [1 - 2e-4, 1e-4, 1e-4]])
    assert abs(np.ptp(centred_logs(rounded)[0]) - np.log(1e4)) < 1e-9


def test_an_overconfident_model_does_not_hide_noise():
    """Logits made six times too large, as robust losses do: about one in five labels is wrong all the same."""
    rng, N, K = np.random.default_rng(0), 3000, 6
    true = rng.integers(0, K, N)
    logits = rng.normal(size=(N, K))
    logits[np.arange(N), true] += 4
    labels = np.where(rng.random(N) < 0.2, (true + rng.integers(1, K, N)) % K, true)
    large = 6 * (logits - logits.max(1, keepdims=True))
    probs = np.exp(large) / np.exp(large).sum(1, keepdims=True)
    found = audit(labels, probs, bootstrap=0)
    assert abs(found.noise_rate.value - (labels != true).mean()) < 0.01


def test_matrix_and_rate_are_equally_unsure():
    """To a weak model the rate is wide open; then the matrix cannot be known to the third digit."""
    rng, N, K = np.random.default_rng(1), 1500, 4
    true = rng.integers(0, K, N)
    logits = 0.8 * rng.normal(size=(N, K))
    logits[np.arange(N), true] += 0.8
    labels = np.where(rng.random(N) < 0.2, (true + rng.integers(1, K, N)) % K, true)
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = audit(labels, probs, bootstrap=5)
    rate, share = found.noise_rate, found.class_prior
    wide = (found.transition_interval[..., 1] - found.transition_interval[..., 0]).diagonal() @ share
    assert rate.high - rate.low > 0.1
    assert wide > 0.4 * (rate.high - rate.low)
