"""Formulas that the folders of their stages check only in company: alone, and many identities in one place."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dubito import channels, heads, integrals, links, losses, noise, targets, weights

TEMPERATURES = [0.5, 1.0, 1.4, 3.0]


def scores(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_log_tempered(a: list[float], t: float) -> list[float]:
    """log exp_t(a_k - lambda) with the lambda at which the probabilities sum to one, found by bisection."""

    def exp_t(x: float) -> float:
        if t == 1:
            return math.exp(x)
        base = 1 + (1 - t) * x
        return base ** (1 / (1 - t)) if base > 0 else (0.0 if t < 1 else math.inf)

    low, high = max(a) - 60, max(a) + 60
    if t > 1:
        low = max(a)
    for _ in range(300):
        middle = (low + high) / 2
        if sum(exp_t(x - middle) for x in a) > 1:
            low = middle
        else:
            high = middle
    found = [exp_t(x - (low + high) / 2) for x in a]
    return [math.log(p) if p > 0 else -math.inf for p in found]


@pytest.mark.rel
@pytest.mark.parametrize("t", TEMPERATURES)
def test_tempered_log_softmax_equals_its_definition(t: float, scorecard: Callable[..., None]) -> None:
    """Scorecard 1: links.tempered_log_softmax, against bisection for the normaliser."""
    a = scores(20, 5) / 2
    found = links.tempered_log_softmax(a, t).exp()
    expected = torch.tensor([naive_log_tempered(row, t) for row in a.tolist()], dtype=torch.float64).exp()
    error = float(((found - expected).abs() / expected.clamp(min=1e-3)).max())
    scorecard(1, relative_error=error)
    assert error < 1e-10


@pytest.mark.rel
def test_gradients_of_distillation_and_tempered_log_softmax() -> None:
    """Scorecard 2: distillation in the student's logits, tempered_log_softmax in the activations."""
    teacher, T = scores(4, 3, seed=1), noise.resample(3, 0.3)
    for options in ({}, {"smoothing": 0.1, "temperature": 3.0}, {"channel": T}):
        student = scores(4, 3).requires_grad_()
        torch.autograd.gradcheck(
            lambda z, o=options: losses.distillation(z, teacher, reduction="none", **o), student
        )
    for t in (1.0, 1.4, 3.0):
        activations = scores(4, 3).requires_grad_()
        torch.autograd.gradcheck(lambda a, t=t: links.tempered_log_softmax(a, t), activations)


@pytest.mark.rel
def test_tempered_log_softmax_compiles() -> None:
    """Scorecard 12: tempered_log_softmax as one graph."""
    a = scores(6, 4)
    graph = torch.compile(lambda x: links.tempered_log_softmax(x, 1.4), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(graph(a), links.tempered_log_softmax(a, 1.4), rtol=1e-5, atol=1e-8)


def identities() -> dict[str, tuple[Tensor, Tensor]]:
    """What a formula gives at the edge of its range, and what it has to be there."""
    z, y = scores(50, 4), torch.arange(50) % 4
    log_p = z.log_softmax(-1)
    plain, eye = F.cross_entropy(z, y), torch.eye(4, dtype=torch.float64)
    T = noise.resample(4, 0.3)
    one_person = channels.AnnotatorConfusion(1, 4).double()
    learned = channels.LearnedTransition(4).double()
    backward = targets.smear(targets.smooth(y, 4, 0.0, dtype=torch.float64), targets.backward_matrix(T))
    batch = losses.nll(z, torch.eye(4, dtype=torch.float64)[y], reduction="none")
    normal = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
    pair = torch.tensor([[0.7, -0.2]], dtype=torch.float64)
    spread = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    probit = normal.cdf((pair[:, 0] - pair[:, 1]) / spread.square().sum(-1).sqrt())
    head = heads.LogisticNormal(5, 4).double()
    mean = head(scores(3, 5, seed=2)).mean
    classes = torch.arange(4)
    corrected = targets.smear(eye, targets.backward_matrix(T))
    unbiased = T @ losses.nll(z[0].expand(4, 4), corrected, reduction="none")
    root, lam = scores(4, seed=3), 0.5
    half = root.outer(root) + lam * eye
    dense = torch.distributions.MultivariateNormal(z[0], half @ half.T)
    labels = targets.smooth(y[:1], 5, 0.01, dtype=torch.float64)  # the fifth is the class that never occurs
    gaussian = -dense.log_prob((labels / labels[:, 4:]).log()[0, :4]) - 2 * math.log(2 * math.pi)
    return {
        "logistic-normal is a dense Gaussian": (
            losses.logistic_normal_nll(z[:1], root[None], y[:1], lam=lam),
            gaussian,
        ),
        "gce, q -> 0": (losses.gce(z, y, q=1e-9), plain),
        "gce, q = 1": (losses.gce(z, y, q=1.0), (1 - log_p.exp()[torch.arange(50), y]).mean()),
        "truncated gce, k -> 0": (losses.truncated_gce(z, y, k=0.0), losses.gce(z, y)),
        "bootstrap, beta = 1": (losses.bootstrap(z, y, beta=1.0), plain),
        "hard bootstrap, beta = 1": (losses.bootstrap(z, y, beta=1.0, kind="hard"), plain),
        "bi-tempered at 1, 1": (losses.bi_tempered(z, y, t1=1.0, t2=1.0), plain),
        "tempered softmax at 1": (links.tempered_log_softmax(z, 1.0), log_p),
        "smoothing 0": (losses.nll(z, targets.smooth(y, 4, 0.0, dtype=torch.float64)), plain),
        "identity channel": (channels.FixedTransition(eye)(log_p), log_p),
        "one annotator is a learned matrix": (
            one_person(log_p, torch.zeros(50, dtype=torch.long)),
            learned(log_p),
        ),
        "smearing by the identity": (losses.nll(z, targets.smear(eye[y], eye)), plain),
        "backward correction, unbiased": (unbiased, losses.nll(z[0].expand(4, 4), classes, reduction="none")),
        "backward matrix undoes T": (targets.smear(backward, T), eye[y]),
        "one-hot weights": (batch.mean(), plain),
        "sigma 0": (integrals.expected_log_softmax(z, 0 * z, temperature=0.7), links.log_softmax(z, 0.7)),
        "tau -> 0, two classes": (
            integrals.expected_softmax_nll(pair, spread, torch.tensor([0]), temperature=1e-9, tol=1e-9),
            -probit.log().mean(),
        ),
        "temperature scales": (links.log_softmax(3 * z, 3.0), log_p),
        "centred inverse": (links.centred_logits(links.centred_log_softmax(z, 0.5), 0.5), z),
        "the logistic-normal mean predicts": (links.logistic_normal_log_softmax(mean), mean.log_softmax(-1)),
        "forgetting nothing": (weights.small_loss(batch, 0.0), torch.ones_like(batch)),
        "self-paced, far threshold": (weights.self_paced(batch, 1e9), torch.ones_like(batch)),
        "distillation from a certain teacher": (
            losses.distillation(z, 1e3 * eye[y], temperature=1.0),
            plain,
        ),
    }  # fmt: skip


@pytest.mark.rel
def test_identities(scorecard: Callable[..., None]) -> None:
    """Scorecard 3: where a parameter switches a method off the plain method remains, and other limits."""
    found = {name: float((a.double() - b.double()).abs().max()) for name, (a, b) in identities().items()}
    scorecard(3, identities=len(found), error=max(found.values()))
    assert len(found) >= 15
    assert {name: error for name, error in found.items() if not error < 1e-6} == {}
