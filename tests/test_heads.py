"""Heads against naive transcriptions, their contracts, and what they refuse."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dubito import DubitoError, Model, fit
from dubito.data import LabelledData
from dubito.heads import Diagonal, Latent, LogisticNormal, LowRank, Point, PreLogit
from dubito.testing import check_head

HEADS = {
    "point": Point,
    "diagonal": Diagonal,
    "diagonal torch": partial(Diagonal, init="torch"),
    "low rank": partial(LowRank, rank=2),
    "parameter efficient": partial(LowRank, rank=2, parameter_efficient=True),
    "shared bias": partial(LowRank, rank=2, parameter_efficient=True, shared_bias=True, init="torch"),
    "pre-logit": partial(PreLogit, rank=2),
    "ln": LogisticNormal,
    "ln no dummy": partial(LogisticNormal, dummy=False),
    "ln diagonal": partial(LogisticNormal, covariance="diagonal"),
    "ln isotropic": partial(LogisticNormal, covariance="isotropic"),
    "ln identity": partial(LogisticNormal, covariance="identity"),
}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def features(*shape, seed=1):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def affine(layer, h):
    """W h + b written out, in float64."""
    total = [sum(float(w) * float(x) for w, x in zip(row, h)) for row in layer.weight.detach()]
    bias = [0.0] * len(total) if layer.bias is None else [float(b) for b in layer.bias.detach()]
    return torch.tensor([t + b for t, b in zip(total, bias)], dtype=torch.float64)


def softplus(x):
    return torch.log1p(torch.exp(x)) + 1e-3


@pytest.mark.rel
@pytest.mark.parametrize("name", HEADS)
def test_contract(name):
    """Scorecard 2, 4, 11, 12, 24: gradcheck, extremes, leading shapes, compiled graph, generators."""
    counts = check_head(HEADS[name])
    assert counts["finite"] >= 100
    assert counts["gradcheck"] >= 3


class Silent(Point):
    """A Gaussian head that says nothing of its noise."""

    def forward(self, features):
        mean = super().forward(features).mean
        return Latent(mean, torch.full_like(mean, 0.3))


class Told(Silent):
    noisy = True


def test_a_head_with_a_scale_has_to_say_that_it_is_noisy():
    """Training draws anew for heads that say so; the others would meet the same noise at every step."""
    with pytest.raises(AssertionError, match="noisy = True"):
        check_head(Silent)
    assert check_head(Told)["shapes"] > 0
    data = LabelledData(features(6, 4).float(), torch.arange(6) % 3)
    with pytest.raises(DubitoError, match="at Silent; set noisy = True"):
        fit(Model(torch.nn.Identity(), Silent(4, 3)), data, epochs=1, progress=False)
    assert fit(Model(torch.nn.Identity(), Told(4, 3)), data, epochs=1, progress=False).steps == 1


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 2", "collier2020 eq. 4")
def test_diagonal_transcription():
    """Scorecard 1: mean = W h + b, scale = log(1 + exp(V h + c)) + 0.001."""
    head, h = Diagonal(4, 3, generator=generator(), init="torch").double(), 5 * features(4)
    latent = head(h)
    torch.testing.assert_close(latent.mean, affine(head.mean, h), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(latent.scale, softplus(affine(head.scale, h)), rtol=1e-10, atol=0)


@pytest.mark.rel
def test_scale_is_softplus_for_any_size():
    """Scorecard 1: no shortcut where softplus is nearly linear; the floor is added after it."""
    head = Diagonal(1, 1).double()
    with torch.no_grad():
        head.scale.weight.fill_(1.0)
    for x in (-800.0, -30.0, -1.0, 0.0, 19.0, 21.0, 60.0):
        exact = max(x, 0.0) + torch.log1p(torch.exp(-torch.tensor(abs(x), dtype=torch.float64)))
        found = head(torch.tensor([x], dtype=torch.float64)).scale
        torch.testing.assert_close(found.squeeze(), exact + 1e-3, rtol=1e-12, atol=0)


@pytest.mark.rel
def test_low_rank_transcription():
    """Scorecard 1: factor r of class k is output k * R + r of the factor layer."""
    head, h = LowRank(4, 3, rank=2, init="torch").double(), features(4)
    flat = affine(head.factors, h)
    wanted = torch.tensor([[flat[2 * k + r] for r in range(2)] for k in range(3)], dtype=torch.float64)
    torch.testing.assert_close(head(h).factors, wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.rel
@pytest.mark.parametrize("shared_bias", [False, True])
def test_parameter_efficient_noise(shared_bias):
    """Scorecard 1: u = mean + v * (V e_R) + d * e_K; a bias b inside the bracket moves the mean by v * b."""
    make = partial(LowRank, rank=2, parameter_efficient=True, shared_bias=shared_bias, init="torch")
    head, h, e = make(4, 3).double(), features(4), features(2, seed=5)
    latent, v = head(h), affine(head.factors, h)
    found = latent.mean + latent.factors @ e
    wanted = affine(head.mean, h) + v * affine(head.shared, e)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_parameter_efficient_is_smaller():
    def size(**options):
        return sum(p.numel() for p in LowRank(64, 100, rank=10, **options).parameters())

    assert size() == 2 * 6500 + 65 * 1000
    assert size(parameter_efficient=True) == 3 * 6500 + 1000


@pytest.mark.rel
@pytest.mark.parametrize("name", ["low rank", "parameter efficient"])
def test_empirical_covariance(name):
    """Scorecard 3: noise drawn as documented has covariance V V' + diag(d^2), each class with its own draw."""
    latent = HEADS[name](4, 3, generator=generator()).double()(features(4))
    count, source = 200_000, generator(2)
    shared = torch.randn(count, 2, generator=source, dtype=torch.float64)
    own = torch.randn(count, 3, generator=source, dtype=torch.float64)
    u = latent.mean + shared @ latent.factors.T + own * latent.scale
    wanted = latent.factors @ latent.factors.T + latent.scale.square().diag()
    spread = wanted.diagonal().outer(wanted.diagonal()).sqrt()
    assert ((torch.cov(u.T) - wanted).abs() / spread).max() < 0.015
    assert (wanted - latent.scale.outer(latent.scale)).abs().max() > 0.05  # one draw for all classes differs


@pytest.mark.rel
def test_pre_logit_is_noise_before_the_last_layer():
    """Scorecard 1: mean + factors e = W (h + V e_R + d e_D) + b."""
    head, h, e = PreLogit(4, 3, rank=2, init="torch").double(), features(4), features(6, seed=3)
    latent = head(h)
    V = affine(head.factors, h).reshape(4, 2)
    noisy = h + V @ e[:2] + softplus(affine(head.scale, h)) * e[2:]
    torch.testing.assert_close(
        latent.mean + latent.factors @ e, affine(head.mean, noisy), rtol=1e-10, atol=1e-12
    )
    assert not latent.scale.any()


@pytest.mark.paper("englesson2023 eq. 9", "englesson2023 table 3")
def test_logistic_normal_widths():
    for dummy, outputs in ((True, 5), (False, 4)):
        for covariance, width in (
            ("full", outputs),
            ("diagonal", outputs),
            ("isotropic", 1),
            ("identity", 0),
        ):
            latent = LogisticNormal(3, 5, dummy=dummy, covariance=covariance)(torch.ones(2, 3))
            assert latent.mean.shape == (2, outputs)
            assert latent.root.shape == (2, width)


def test_root_never_starts_at_zero():
    """c = 0 is a stationary point of the likelihood."""
    for covariance in ("full", "diagonal", "isotropic"):
        root = LogisticNormal(3, 5, covariance=covariance).root
        assert root.weight.abs().max() > 0.1


@pytest.mark.parametrize(("init", "bound"), [("glorot", (6 / 103) ** 0.5), ("torch", 0.1)])
def test_init(init, bound):
    """Glorot uniform with zero bias, or the start of torch.nn.Linear."""
    layer = Point(100, 3, init=init, generator=generator()).mean
    assert layer.weight.abs().max() <= bound
    assert float(layer.weight.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    assert bool(layer.bias.any()) == (init == "torch")


@pytest.mark.parametrize("name", ["point", "diagonal", "low rank", "parameter efficient", "pre-logit", "ln"])
def test_a_start_at_zero_can_be_left(name):
    """init="zeros": all logits are alike; factors of noise, which would stay 0 for ever, start elsewhere."""
    head = HEADS[name](4, 3, init="zeros").double()
    assert not bool(head(features(6, 4)).mean.any())
    for layer in ("factors", "shared", "root"):
        if getattr(head, layer, None) is not None:
            assert bool(getattr(head, layer).weight.any())


def test_paired_starts():
    """With the same generator every head has the same mean layer, so that comparisons are paired."""
    first = Point(4, 3, generator=generator(7)).mean.weight
    for make in (Diagonal, LowRank, PreLogit, LogisticNormal):
        assert torch.equal(first, make(4, 3, generator=generator(7)).mean.weight)
    assert torch.equal(Point(4, 3).mean.weight, Point(4, 3).mean.weight)


def test_autocast_gives_float32():
    head, h = LowRank(4, 3, rank=2), torch.randn(2, 4, generator=generator())
    with torch.autocast("cpu", torch.bfloat16):
        latent = head(h)
    assert {part.dtype for part in latent if part is not None} == {torch.float32}


def test_latent_unpacks():
    mean, scale, factors, root = Latent(torch.zeros(2))
    assert mean.shape == (2,)
    assert scale is factors is root is None


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Point(4, 0), "num_classes is too small"),
        (lambda: Point(0, 4), "in_features is too small"),
        (lambda: LowRank(4, 3, rank=0), "rank is too small"),
        (lambda: LowRank(4, 3, shared_bias=True), "parameter_efficient"),
        (lambda: LogisticNormal(4, 1, dummy=False), "too small"),
        (lambda: LogisticNormal(4, 3, covariance="diag"), "did you mean 'diagonal'"),
        (lambda: Point(4, 3, init="glorott"), "did you mean 'glorot'"),
        (lambda: Point(4, 3)(torch.zeros(2, 5)), "expected 4, got 5"),
        (lambda: Point(4, 3)(torch.zeros(2, 4, dtype=torch.long)), "floating"),
    ],
)
def test_refusals(call, words):
    """Scorecard 13: wrong sizes and types are refused in a sentence."""
    with pytest.raises(DubitoError, match=words):
        call()
