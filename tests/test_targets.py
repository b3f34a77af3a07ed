"""Targets: against their formulas, what is refused, and stochastic label noise."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dubito import DubitoError, nll, targets
from dubito._matrices import check_invertible, check_stochastic
from dubito.targets import _label_noise, backward_matrix, corrected, label_noise, smear, smooth

Z = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.3, -0.2]], dtype=torch.float64)
Y = torch.tensor([0, 2])
EYE = torch.eye(3, dtype=torch.float64)
T = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.9, 0.05], [0.0, 0.3, 0.7]], dtype=torch.float64)


def symmetric(alpha, size=3):
    return (1 - alpha) * torch.eye(size, dtype=torch.float64) + alpha / size


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 1")
def test_smooth_equals_transcription():
    """Scorecard 1: smooth."""
    for alpha in (0.0, 0.1, 0.5, 1.0):
        expected = [[(1 - alpha) * (k == y) + alpha / 3 for k in range(3)] for y in Y.tolist()]
        np.testing.assert_allclose(smooth(Y, 3, alpha).numpy(), expected, rtol=1e-15)
        assert torch.equal(smooth(EYE[Y], 3, alpha), smooth(Y, 3, alpha))
    assert torch.equal(smooth(Y, 3, 0.0), EYE[Y])
    assert smooth(Y, 3, 0.1, dtype=torch.float32).dtype == torch.float32


def test_printed_values():
    def loss(weights):
        return nll(Z, weights, reduction="none").numpy()

    np.testing.assert_allclose(loss(smooth(Y, 3, 0.1)), [0.391311, 1.359273], atol=1e-6)
    backward = smear(Y, backward_matrix(symmetric(0.2)))
    np.testing.assert_allclose(loss(backward), [-0.133689, 1.452606], atol=1e-6)


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 sec. 3.1")
def test_smear_equals_transcription():
    """Scorecard 1: smear multiplies the vector of losses by M, row = label."""
    M = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    l = -Z.log_softmax(-1)  # noqa: E741
    for n, y in enumerate(Y.tolist()):
        expected = sum(float(M[y, j]) * float(l[n, j]) for j in range(3))
        assert float(nll(Z[n], smear(Y[n], M))) == pytest.approx(expected, rel=1e-12)
        transposed = sum(float(M[j, y]) * float(l[n, j]) for j in range(3))
        assert abs(transposed - expected) > 1e-3
    assert torch.equal(smear(EYE[Y], M), smear(Y, M))
    torch.testing.assert_close(smear(Y, symmetric(0.3)), smooth(Y, 3, 0.3))
    assert smear(EYE[Y].float(), M).dtype == torch.float64


def test_leading_shapes():
    for shape in ((), (1,), (0,), (2, 3)):
        y = torch.randint(3, shape, generator=torch.Generator().manual_seed(0))
        assert smooth(y, 3, 0.1).shape == (*shape, 3)
        assert smear(y, T).shape == (*shape, 3)
        assert label_noise(y, 3, 1.0, torch.Generator()).shape == (*shape, 3)


@pytest.mark.rel
@pytest.mark.paper("lukasik2020 eq. 4")
def test_backward_matrix_equals_transcription():
    """Scorecard 1: backward_matrix, and its closed form for symmetric noise."""
    torch.testing.assert_close(backward_matrix(T) @ T, EYE, rtol=0, atol=1e-14)
    for alpha in (0.1, 0.5, 0.9):
        closed = (EYE - alpha / 3) / (1 - alpha)
        torch.testing.assert_close(backward_matrix(symmetric(alpha)), closed, rtol=1e-12, atol=1e-12)
    assert backward_matrix(T.float()).dtype == torch.float64
    assert backward_matrix(torch.stack([T, EYE])).shape == (2, 3, 3)


@pytest.mark.rel
@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.ones(2, 3), "T must be a square matrix"),
        (torch.ones(3), "T must be a square matrix"),
        (torch.ones(2, 2, dtype=torch.long), "floating"),
        (torch.tensor([[0.5, 0.6], [0.5, 0.5]]), "not stochastic at row 0"),
        (torch.tensor([[1.1, -0.1], [0.5, 0.5]]), "negative probability"),
        (torch.tensor([[0.5, 0.5], [float("nan"), 1.0]]), "not finite"),
        (torch.tensor([[0.5, 0.5], [0.5, 0.5]]), "condition number"),
        (torch.tensor([[0.5, 0.5], [0.5 - 1e-10, 0.5 + 1e-10]], dtype=torch.float64), "condition number"),
        (T.T, "not stochastic at row 0"),
        (torch.stack([EYE, 2 * EYE]), "not stochastic at row 1, 0"),
    ],
)
def test_matrices_refused(matrix, message):
    """Scorecard 15: not square, not stochastic, negative, singular, NaN; the condition number is reported."""
    with pytest.raises(DubitoError, match=message):
        backward_matrix(matrix)


def test_condition_number_is_in_the_message():
    with pytest.raises(DubitoError, match=r"got \d"):
        check_invertible(torch.full((2, 2), 0.5) + 1e-5 * torch.eye(2), "A", limit=10.0)
    with pytest.raises(DubitoError, match="not finite"):
        check_invertible(torch.full((2, 2), float("inf")))
    check_stochastic(torch.empty(0, 3, 3))
    check_invertible(torch.empty(0, 3, 3))
    check_invertible(torch.tensor([[0.0, 2.0], [-1.0, 0.0]]))  # any invertible matrix will do


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smooth(torch.tensor([0, 3]), 3, 0.1), r"label out of range at target\[1\]: expected 0 to 2"),
        (lambda: smooth(torch.tensor(3), 3, 0.1), r"label out of range at target: expected 0 to 2"),
        (lambda: smooth(torch.tensor([0, -100]), 3, 0.1), "label out of range"),
        (lambda: smooth(torch.tensor([True]), 3, 0.1), "integers"),
        (lambda: smooth(torch.tensor([0.0, 1.0]), 3, 0.1), "one weight per class"),
        (lambda: smooth(torch.tensor(0.0), 3, 0.1), "one weight per class"),
        (lambda: smooth(Y, 3, -0.1), "alpha is out of range"),
        (lambda: smooth(Y, 3, 1.1), "alpha is out of range"),
        (lambda: smooth(Y, 0, 0.1), "num_classes"),
        (lambda: smear(Y, torch.ones(3, 2)), "square"),
        (lambda: smear(Y, torch.ones(2, 3, 3)), "two axes"),
        (lambda: smear(Y, torch.eye(2)), "label out of range"),
        (lambda: smear(torch.ones(2, 4), torch.eye(3)), "one weight per class"),
        (lambda: label_noise(Y, 3, -1.0, torch.Generator()), "sigma is out of range"),
        (lambda: label_noise(Y, 2, 1.0, torch.Generator()), "label out of range"),
    ],
)
def test_refused(call, message):
    """Scorecard 13: bad labels and parameters are refused with our message."""
    with pytest.raises(DubitoError, match=message):
        call()


def test_label_noise_is_the_core_on_drawn_noise():
    found = label_noise(Y, 3, 0.5, torch.Generator().manual_seed(3))
    noise = torch.randn(2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.equal(found, _label_noise(EYE[Y], noise, sigma=0.5))
    assert torch.equal(found, label_noise(Y, 3, 0.5, torch.Generator().manual_seed(3)))
    assert not torch.equal(found, label_noise(Y, 3, 0.5, torch.Generator().manual_seed(4)))
    gradient = torch.autograd.functional.jacobian(lambda z: nll(z, found, reduction="sum"), Z)
    torch.testing.assert_close(gradient, found.sum(-1, keepdim=True) * Z.softmax(-1) - found)


def test_centred_label_noise_keeps_the_sum_and_never_multiplies_the_prediction():
    """The gradient in the logits is softmax - target, TensorFlow's for any target, up to a shift of all alike."""
    found = label_noise(Y, 3, 0.5, torch.Generator().manual_seed(3), centred=True)
    noise = torch.randn(2, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    free = EYE[Y] + 0.5 * noise
    torch.testing.assert_close(found.sum(-1), torch.ones(2, dtype=torch.float64))
    gradient = torch.autograd.functional.jacobian(lambda z: nll(z, found, reduction="sum"), Z)
    differences = gradient - (Z.softmax(-1) - free)
    torch.testing.assert_close(differences, differences[:, :1].expand(-1, 3))
    torch.testing.assert_close(differences[:, 0], 0.5 * noise.mean(-1))


@pytest.mark.rel
def test_label_noise_is_unbiased():
    """Scorecard 3: in expectation the loss with label noise, and its gradient, are those of cross-entropy."""
    draws, sigma = 200_000, 0.7
    weights = label_noise(Y[:1].expand(draws), 3, sigma, torch.Generator().manual_seed(0))
    log_p = Z[0].log_softmax(-1)
    spread = sigma * float(log_p.norm()) / draws**0.5
    values = nll(Z[:1].expand(draws, 3), weights)
    assert abs(float(values) - float(F.cross_entropy(Z[:1], Y[:1]))) < 4 * spread
    gradient = (weights.sum(-1, keepdim=True) * Z[0].softmax(-1) - weights).mean(0)
    expected = Z[0].softmax(-1) - EYE[0]
    assert float((gradient - expected).abs().max()) < 4 * sigma * 2 / draws**0.5
    assert float((weights - EYE[Y[0]]).std()) == pytest.approx(sigma, rel=0.01)


def test_corrected_labels_equal_their_formula():
    """Losses scaled to [0, 1] over the set weigh the label against the prediction."""
    log_p = torch.cat([Z, -Z, 2 * Z]).log_softmax(-1)
    y = torch.tensor([0, 2, 1, 1, 2, 0])
    for losses in (None, torch.tensor([0.5, 3.0, 1.0, 2.0, 0.25, 0.75], dtype=torch.float64)):
        cost = -log_p[range(6), y] if losses is None else losses
        share = ((cost - cost.min()) / (cost.max() - cost.min())).unsqueeze(-1)
        expected = share * EYE[y] + (1 - share) * EYE[log_p.argmax(-1)]
        torch.testing.assert_close(corrected(y, log_p, losses), expected)
        torch.testing.assert_close(corrected(EYE[y], log_p, losses), expected)


def test_corrected_labels_where_losses_are_equal_or_infinite():
    log_p = torch.tensor([[0.0, -torch.inf], [0.0, -torch.inf]])
    torch.testing.assert_close(corrected(torch.tensor([1, 1]), log_p), torch.tensor([[0.0, 1.0]] * 2))
    torch.testing.assert_close(corrected(torch.tensor([1, 0]), log_p), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(DubitoError, match="one loss per label"):
        corrected(torch.tensor([1, 0]), log_p, torch.zeros(3))
    with pytest.raises(DubitoError, match="target does not match"):
        corrected(torch.tensor([1]), log_p)
    torch.testing.assert_close(corrected(torch.tensor([1]), log_p[:1]), torch.tensor([[0.0, 1.0]]))
    for empty in (log_p[0], log_p[:0], log_p[:, :0]):
        with pytest.raises(DubitoError, match="must be a table"):
            corrected(torch.tensor([1, 0])[: len(empty)], empty)


@pytest.mark.rel
def test_hygiene():
    """Scorecard 24: no global generator moves, no input changes."""
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    y, w, M = Y.clone(), EYE[Y].clone(), T.clone()
    for target in (y, w):
        smooth(target, 3, 0.1)
        smear(target, M)
        label_noise(target, 3, 1.0, torch.Generator().manual_seed(0))
    backward_matrix(M)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()
    assert torch.equal(y, Y)
    assert torch.equal(w, EYE[Y])
    assert torch.equal(M, T)


@pytest.mark.rel
def test_cores_compile():
    """Scorecard 12: the pure cores as one graph."""
    noise = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn = {"noise": noise, "sigma": 0.5}
    cores = (
        (targets._smooth, {"alpha": 0.2}),
        (_label_noise, drawn),
        (_label_noise, {**drawn, "centred": True}),
    )
    for core, inputs in cores:
        graph = torch.compile(core, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(graph(EYE[Y], **inputs), core(EYE[Y], **inputs))
