"""Per-example gradients, ``vmap(grad(loss))``, against a loop; forward mode against finite differences."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, hessian, jvp, vmap

import dubito
from dubito import channels, links, losses

K, ROWS = 5, 7
FLOAT = torch.float64


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT)


LABELS, PEOPLE = torch.tensor([0, 1, 2, 3, 4, 0, 2]), torch.tensor([0, 1, 2, 0, 1, 2, 0])
WEIGHTS, SCALE = draws(ROWS, K, seed=1).softmax(-1), draws(ROWS, K, seed=2).exp()
LEARNED, CONFUSION = channels.LearnedTransition(K).double(), channels.AnnotatorConfusion(3, K).double()
POOLED = channels.PooledConfusion(3, K).double()
MATRIX = 0.7 * torch.eye(K, dtype=FLOAT) + 0.3 / K


def observed(channel, z, y, *who):
    return of_label(channel(z.log_softmax(-1), *who), y)


def of_label(log_p, y):
    return -log_p.gather(-1, y.unsqueeze(-1)).sum()


PUBLIC = (*losses.BODIES, losses.bi_tempered)
CASES = {
    **{loss.__name__: (loss, LABELS) for loss in PUBLIC},
    **{f"{loss.__name__} of weights": (loss, WEIGHTS) for loss in PUBLIC},
    "logistic_normal_nll": (lambda z, r, y: losses.logistic_normal_nll(z, r, y, lam=0.7), SCALE, LABELS),
    "distillation": (losses.distillation, SCALE),
    "expected nll": (lambda z, s, y: dubito.expected_softmax_nll(z, s, y, method="fixed"), SCALE, LABELS),
    "expected log_softmax": (
        lambda z, s, y: of_label(dubito.expected_log_softmax(z, s, method="fixed"), y), SCALE, LABELS,
    ),
    "expected sigmoid": (lambda z, s: links.expected_log_sigmoid(z, s).sum(), SCALE),
    "tempered": (lambda z, y: of_label(links.tempered_log_softmax(z, 1.5), y), LABELS),
    "centred": (lambda z, y: of_label(links.centred_log_softmax(z, 0.5), y), LABELS),
    "fixed": (lambda z, y: observed(channels.FixedTransition(MATRIX), z, y), LABELS),
    "learned": (lambda z, y: observed(LEARNED, z, y), LABELS),
    "annotators": (lambda *given: observed(CONFUSION, *given), LABELS, PEOPLE),
    "pooled": (lambda *given: observed(POOLED, *given), LABELS, PEOPLE),
}  # fmt: skip


def test_every_public_loss_and_channel_is_mapped():
    assert {*losses.BODIES, *losses.LATENT_BODIES} == {*PUBLIC, losses.logistic_normal_nll}
    classes = {n for n in channels.__all__ if isinstance(getattr(channels, n), type)}
    assert classes == {"FixedTransition", "LearnedTransition", "AnnotatorConfusion", "PooledConfusion"}


@pytest.mark.parametrize("dtype", [FLOAT, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_per_example_gradients_are_those_of_a_loop(name, dtype):
    function, *given = CASES[name]
    z, *given = (x.to(dtype) if x.is_floating_point() else x for x in (draws(ROWS, K), *given))
    mapped = vmap(grad(function))(z, *given)
    for row in range(ROWS):
        x = z[row].clone().requires_grad_()
        (alone,) = torch.autograd.grad(function(x, *(g[row] for g in given)), x)
        torch.testing.assert_close(mapped[row], alone, rtol=1e-5, atol=10 * torch.finfo(dtype).eps)


def test_values_are_still_looked_at_where_nothing_is_mapped():
    with pytest.raises(dubito.DubitoError, match="label out of range"):
        grad(lambda z: dubito.gce(z, torch.tensor([9])))(draws(1, K))


@pytest.mark.parametrize("t2", [0.7, 1.0, 1.4])
@pytest.mark.parametrize("target", [LABELS, WEIGHTS], ids=["labels", "weights"])
def test_forward_mode_of_bi_tempered(t2, target):
    def loss(z):
        return dubito.bi_tempered(z, target, t1=0.8, t2=t2)

    z, along, h = draws(ROWS, K), draws(ROWS, K, seed=3), 1e-5
    value, slope = jvp(loss, (z,), (along,))
    torch.testing.assert_close(value, loss(z))
    torch.testing.assert_close(
        slope, (loss(z + h * along) - loss(z - h * along)) / (2 * h), rtol=1e-7, atol=1e-9
    )
    bent = torch.einsum("ai,aibj,bj", along, hessian(loss)(z), along)
    curve = (grad(loss)(z + h * along) - grad(loss)(z - h * along)) / (2 * h)
    torch.testing.assert_close(bent, (along * curve).sum(), rtol=1e-6, atol=1e-8)
