"""The integrals within `torch.compile`: called as they are, between two graphs."""

from __future__ import annotations

import pytest
import torch

from dubito import links


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


SCALE, FACTORS = drawn(16, 5, seed=1).exp(), 0.3 * drawn(16, 5, 2, seed=2)
LABELS = torch.arange(16) % 5
CASES = {
    "nll": lambda m: links.expected_softmax_nll(m, SCALE, LABELS),
    "nll, fixed": lambda m: links.expected_softmax_nll(m, SCALE, LABELS, method="fixed"),
    "nll, factors": lambda m: links.expected_softmax_nll(m, SCALE, LABELS, factors=FACTORS, tol=1e-3),
    "all classes": lambda m: links.expected_log_softmax(m, SCALE).square().sum(),
    "variance": lambda m: links.predictive_variance(m, SCALE).sum() + m.sum(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_compiled_code_around_an_integral_gives_the_same(name, dtype):
    def loss(x):
        return 3 * CASES[name](2 * x)

    torch._dynamo.reset()
    found, ends = [], []

    def counted(graph, inputs):
        ends.append(len(graph.graph.nodes))
        return graph

    for call in (loss, torch.compile(loss, backend=counted)):
        x = drawn(16, 5).to(dtype).requires_grad_()
        value = call(x)
        value.backward()
        found.append((value.detach(), x.grad))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    assert 1 <= len(ends) <= 4
    assert max(ends) < 20  # what is around the call, and nothing of the integral


def test_the_place_of_a_warning_is_the_call():
    with pytest.warns(RuntimeWarning, match="less exact than asked for") as caught:
        links.expected_softmax_nll(drawn(4, 8), SCALE[:4, :1], LABELS[:4], factors=drawn(4, 8, 5), tol=1e-9)
    assert caught[0].filename == __file__
