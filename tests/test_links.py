"""Links against naive transcriptions and limits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck

from dubito import DubitoError, links

TAUS = (0.025, 0.5, 1.0, 7.0)


def logits(*shape, seed=0):
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def naive_softmax(z):
    powers = [float(torch.exp(x)) for x in z]
    return torch.tensor([p / sum(powers) for p in powers], dtype=torch.float64)


@pytest.mark.rel
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.paper("collier2020 eq. 6", "englesson2023 eq. 10")
def test_transcriptions(tau):
    """Scorecard 1: softmax(z / tau) and S_C(z / tau) = softmax([z / tau, 0])."""
    z = logits(5)
    torch.testing.assert_close(
        links.log_softmax(z, tau), naive_softmax(z / tau).log(), rtol=1e-10, atol=1e-12
    )
    wanted = naive_softmax(torch.cat([z / tau, torch.zeros(1)])).log()
    torch.testing.assert_close(links.centred_log_softmax(z, tau), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.rel
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.paper("englesson2023 eq. 11")
def test_centred_inverse(tau):
    """Scorecard 1, 3: S_C^(-1) undoes S_C, and equals tau log(p_k / p_K)."""
    z = logits(4, 5)
    log_p = links.centred_log_softmax(z, tau)
    torch.testing.assert_close(links.centred_logits(log_p, tau), z, rtol=1e-10, atol=1e-10)
    p = log_p[0].exp()
    if tau >= 0.5:
        wanted = tau * (p[:-1] / p[-1]).log()
        torch.testing.assert_close(links.centred_logits(log_p, tau)[0], wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.rel
def test_logistic_normal_prediction():
    """Scorecard 1, 3: the dummy class dropped and the rest renormalised is softmax(mean / tau)."""
    mean, tau = logits(4, 5), 0.5
    kept = links.centred_log_softmax(mean, tau).exp()[..., :-1]
    found = links.logistic_normal_log_softmax(mean, tau).exp()
    torch.testing.assert_close(found, kept / kept.sum(-1, keepdim=True), rtol=1e-10, atol=0)
    without = links.logistic_normal_log_softmax(mean, tau, dummy=False)
    assert without.shape == (4, 6)
    assert torch.equal(without, links.centred_log_softmax(mean, tau))


@pytest.mark.rel
@pytest.mark.paper("collier2020 eq. 6")
def test_temperature_zero_is_argmax():
    """Scorecard 3: tau -> 0 is the argmax, ties shared, zero gradient."""
    z = torch.tensor([[1.0, 3.0, 2.0], [2.0, 0.0, 2.0], [5.0, 5.0, 5.0]], requires_grad=True)
    p = links.log_softmax(z, 0.0).exp()
    wanted = torch.tensor([[0, 1, 0], [0.5, 0, 0.5], [1 / 3, 1 / 3, 1 / 3]])
    torch.testing.assert_close(p, wanted)
    torch.testing.assert_close(links.log_softmax(z, 1e-3).exp(), wanted, rtol=0, atol=1e-6)
    links.log_softmax(z, 0.0)[:, 0].sum().backward()
    assert torch.equal(z.grad, torch.zeros_like(z))


@pytest.mark.rel
def test_temperature_scales():
    """Scorecard 3: (a z, a tau) is (z, tau)."""
    z = logits(4, 5)
    torch.testing.assert_close(links.log_softmax(7 * z, 3.5), links.log_softmax(z, 0.5), rtol=1e-10, atol=0)


@pytest.mark.rel
def test_gradcheck():
    """Scorecard 2: the derivative in logits and in temperature."""
    z, tau = logits(3, 4).requires_grad_(), torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert gradcheck(links.log_softmax, (z, tau))
    assert gradcheck(links.centred_log_softmax, (z, tau))
    assert gradcheck(links.centred_logits, (z, tau))
    assert gradcheck(links.logistic_normal_log_softmax, (z, tau))


@pytest.mark.rel
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tau", [0.0, 1e-6, 0.025, 1.0, 100.0])
@pytest.mark.parametrize("link", [links.log_softmax, links.centred_log_softmax])
def test_extremes(dtype, tau, link):
    """Scorecard 4: finite gradients at any logits; log-probabilities never NaN or positive infinity."""
    top = 1e4 if dtype == torch.float16 else 1e38
    rows = torch.tensor([[0.0, 0, 0], [1, -1, 0], [1, 1, -1], [-1, -1, -1], [1, 1, 1]], dtype=torch.float64)
    for size in (1.0, 1e4, top):
        z = (rows * size).to(dtype).requires_grad_()
        log_p = link(z, tau)
        assert log_p.dtype == (dtype if dtype == torch.float64 else torch.float32)
        assert not log_p.isnan().any()
        assert (log_p <= 0).all()
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(5, dtype=log_p.dtype), rtol=0, atol=1e-5)
        log_p.amax(-1).sum().backward()
        assert z.grad.isfinite().all()


@pytest.mark.rel
def test_sums_to_one(scorecard):
    """Scorecard 6: links sum to one in float32."""
    off = []
    rows = st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=4, max_size=4), min_size=1, max_size=4)

    @given(rows=rows, tau=st.floats(0.01, 100), scale=st.floats(0, 100, width=32))
    def check(rows, tau, scale):
        z = torch.tensor(rows, dtype=torch.float32)
        for link in (links.log_softmax, links.centred_log_softmax, links.logistic_normal_log_softmax):
            off.append(float((link(z, tau).exp().sum(-1) - 1).abs().max()))
        noise = torch.linspace(-2, 2, 40).reshape(10, 1, 4).expand(10, len(z), 4)
        sampled = links.sampled_log_softmax(z, torch.full_like(z, scale), noise, temperature=tau)
        off.append(float((sampled.exp().sum(-1) - 1).abs().max()))
        assert max(off) < 1e-5

    check()
    scorecard(6, deviation=max(off), cases=len(off))


@pytest.mark.rel
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 5e-3)])
def test_half_precision_by_value(dtype, tolerance, scorecard):
    """Scorecard 5: half-precision logits give nearly the float64 log-probabilities."""
    z = logits(50, 4)
    for link in (links.log_softmax, links.centred_log_softmax, links.logistic_normal_log_softmax):
        found, wanted = link(z.to(dtype), 2.0).double(), link(z, 2.0)
        error = float(((found - wanted).abs() / wanted.abs().clamp(min=1)).max())
        scorecard(5, **{f"{str(dtype).removeprefix('torch.')}_error": error})
        assert error < tolerance


@pytest.mark.rel
def test_shapes_and_axis():
    """Scorecard 11: any leading shape equals a loop; `dim` moves the class axis."""
    z = logits(2, 3, 4)
    loop = torch.stack([torch.stack([links.log_softmax(row, 0.5) for row in block]) for block in z])
    torch.testing.assert_close(links.log_softmax(z, 0.5), loop, rtol=1e-12, atol=0)
    moved = links.log_softmax(z.movedim(-1, 1), 0.5, dim=1).movedim(1, -1)
    torch.testing.assert_close(moved, loop, rtol=1e-12, atol=0)
    assert links.log_softmax(torch.zeros(0, 4)).shape == (0, 4)
    assert links.centred_log_softmax(torch.zeros(2, 0, 4)).shape == (2, 0, 5)
    assert links.log_softmax(torch.zeros(2, 0, 4), 0.0).shape == (2, 0, 4)
    one_each = links.log_softmax(z, torch.tensor([[[0.5]], [[2.0]]]))
    torch.testing.assert_close(one_each[0], loop[0], rtol=1e-12, atol=0)


@pytest.mark.rel
@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_compiles_and_vmaps(tau):
    """Scorecard 12: one graph, the same numbers."""
    z = logits(3, 4).float()
    for link in (links.log_softmax, links.centred_log_softmax, links.logistic_normal_log_softmax):
        graph = torch.compile(link, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(graph(z, tau), link(z, tau), rtol=1e-5, atol=0)
    if tau:
        graph = torch.compile(links.centred_logits, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(graph(z, tau), links.centred_logits(z, tau), rtol=1e-5, atol=0)
    body = torch.vmap(lambda row: links._log_softmax(row, tau))
    torch.testing.assert_close(body(z), links.log_softmax(z, tau), rtol=1e-6, atol=0)


def test_every_link_is_here():
    for name in links.__all__:
        assert callable(getattr(links, name))


@pytest.mark.rel
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda z: links.log_softmax(z, -1.0), "temperature must be finite and at least 0: got -1.0"),
        (lambda z: links.log_softmax(z, float("nan")), "temperature"),
        (lambda z: links.log_softmax(z, torch.tensor(0.0)), "tensor must be positive"),
        (lambda z: links.log_softmax(z.long()), "floating"),
        (lambda z: links.centred_log_softmax(z, -1.0), "temperature"),
        (lambda z: links.centred_logits(z, -1.0), "temperature"),
    ],
)
def test_refusals(call, words):
    """Scorecard 13: negative temperatures and integer logits are refused in a sentence."""
    with pytest.raises(DubitoError, match=words):
        call(torch.zeros(2, 3))
