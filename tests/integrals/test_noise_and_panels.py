"""Streams of noise number by number, and panels against Gauss and Legendre."""

from __future__ import annotations

import math

import numpy as np
import pytest
import softmax_rows as families
import torch
from torch.quasirandom import SobolEngine

from dubito.integrals import all_classes, noise, panels
from dubito.integrals.rows import make_rows
from dubito.integrals.sampling import REPLICATES, standard_error

F64 = torch.float64


def generator(seed):
    return torch.Generator().manual_seed(seed)


def test_every_block_has_a_seed_of_its_own():
    """Block i of a stream is the first block of the stream that begins i later; seeds end at 2^63 and go round."""
    mean = torch.zeros(2, 3, dtype=F64)

    def block(seed, index=0, rank=0):
        return list(noise.random_blocks(mean, rank, 70, seed))[index][0]

    assert [len(b[0]) for b in noise.random_blocks(mean, 0, 70, 5)] == [32, 32, 6]
    assert torch.equal(block(5, 1), block(6))
    assert torch.equal(block(2**63 - 1, 1), block(0))
    assert torch.equal(block(7), torch.randn(32, 2, 3, generator=generator(7), dtype=F64))
    seeds = (0, 1, 2, 126, 189, 200, 326, 2**31)
    assert len({float(block(s)[0, 0, 0]) for s in seeds}) == len(seeds)
    with_factors = next(iter(noise.random_blocks(mean, 4, 70, 5)))
    assert with_factors[1].shape == (32, 2, 4)


def test_seed_is_the_next_number_of_the_generator():
    wanted = int(torch.randint(2**62, (), generator=generator(11)))
    assert noise.fresh_seed(generator(11)) == wanted > 10**6
    assert noise.fresh_seed(None) == 0


def test_axes_beyond_the_tables(monkeypatch):
    """Copies with seeds of their own, in an order of their own, in the middle of their cells."""
    monkeypatch.setattr(noise, "_SOBOL_AXES", 3)
    for seed in (4, 300, 2**63 - 1):
        found = noise._uniform_bank.__wrapped__(16, 7, seed)
        parts = []
        for part, width in enumerate((3, 3, 1)):
            own = (seed + part) % 2**63
            points = SobolEngine(width, scramble=True, seed=own).draw(16, dtype=F64)
            parts.append(points[torch.randperm(16, generator=generator(own))] if part else points)
        torch.testing.assert_close(found, torch.cat(parts, 1) + 0.5 * 2.0**-30, rtol=0, atol=0)


def test_factors_take_the_first_axes():
    bank, factors = noise.sobol_bank(16, 3, 2, 9, "normal", torch.device("cpu"), F64)
    uniform = noise._uniform_bank(16, 5, 9)
    torch.testing.assert_close(factors, torch.special.ndtri(uniform[:, :2]))
    torch.testing.assert_close(bank, torch.special.ndtri(uniform[:, 2:]))
    assert noise.sobol_bank(16, 3, 0, 9, "normal", torch.device("cpu"), F64)[1] is None


def test_quantiles_and_powers_of_two():
    u = torch.tensor([0.01, 0.4, 0.97], dtype=F64)
    torch.testing.assert_close(noise.quantile(u, "logistic"), (u / (1 - u)).log())
    torch.testing.assert_close(noise.quantile(u, "gumbel"), -(-u.log()).log())
    torch.testing.assert_close(0.5 * (1 + torch.erf(noise.quantile(u, "normal") / math.sqrt(2))), u)
    assert [noise.power_of_two(n) for n in (0, 1, 2, 3, 4, 1000, 1024)] == [1, 1, 2, 4, 4, 1024, 1024]


@pytest.mark.parametrize(
    ("kind", "mean", "variance"),
    [("normal", 0.0, 1.0), ("gumbel", 0.57722, 1.64493), ("logistic", 0.0, 3.28987)],
)
def test_moments_of_the_draws(kind, mean, variance):
    drawn = noise.standard_noise(kind, (200_000,), generator(0), torch.zeros(1, dtype=F64))
    assert float(drawn.mean()) == pytest.approx(mean, abs=0.02)
    assert float(drawn.var()) == pytest.approx(variance, rel=0.03)


def test_standard_error_from_replicates():
    """Eight averages of an eighth of the draws, from seeds far from that of the average itself."""
    from dubito.integrals.border import as_latent
    from dubito.integrals.sampling import by_mc

    latent = as_latent(torch.tensor([[1.0, 0.0, -1.0]], dtype=F64), 1.0, None, 1.0)
    runs = [by_mc(latent, 40, 3 + (r + 1) * 1_000_003, "normal").exp() for r in range(8)]
    wanted = torch.stack(runs).std(0) / math.sqrt(8)
    assert REPLICATES == 8
    torch.testing.assert_close(standard_error("mc", latent, 320, 3, "normal"), wanted)
    assert bool(torch.isfinite(standard_error("qmc", latent, 1, 3, "normal")).all())


@pytest.mark.parametrize("n", [2, 5, 8])
def test_gauss_and_legendre(n):
    x, w = np.polynomial.legendre.leggauss(n)
    nodes, weights = panels.gauss_legendre(n, torch.zeros(1, dtype=F64))
    np.testing.assert_allclose(nodes.numpy(), (x + 1) / 2, atol=1e-13)
    np.testing.assert_allclose(weights.numpy(), w / 2, atol=1e-13)


def total_log_cdf(mean, scale, tau, t):
    """G(t) = sum_k log F_k(t), written down a second time."""
    import softmax_reference as reference

    return sum(reference.log_cdf(np.asarray(t) - m, s, tau) for m, s in zip(mean, scale))


@pytest.mark.parametrize(("kind", "tau"), [("ordinary", 0.3), ("lognormal", 1.0)])
def test_panels(kind, tau):
    """Edges near the levels, masses from edge to edge, and errors that cover what is missed."""
    mean, scale, temperature, target = families.rows(kind, tau, 4, 2)
    rows = make_rows(mean, scale, temperature, torch.zeros_like(target))
    edges = panels._edges(rows)
    assert edges.shape == (2, len(panels._LEVELS))
    shift = np.euler_gamma * tau
    for i in range(2):
        centred = (mean[i] - mean[i, 0]).numpy()
        value = total_log_cdf(centred, scale[i].numpy(), tau, edges[i, :9].numpy() + shift)
        np.testing.assert_allclose(np.log(-value), np.log(-np.array(panels._LEVELS[:9])), atol=0.25)
    found, error = panels.refine(rows, 1e-10)
    mass = panels._mass(rows, found)
    for i in range(2):
        own = found.row == i
        centred = (mean[i] - mean[i, 0]).numpy()
        left, right = found.left[own], (found.left + found.length)[own]
        ends = [
            np.exp(total_log_cdf(centred, scale[i].numpy(), tau, x.numpy() + shift)) for x in (left, right)
        ]
        np.testing.assert_allclose(mass[own].numpy(), ends[1] - ends[0], atol=1e-8)
        assert float(mass[own].sum()) == pytest.approx(1.0, abs=1e-8)
        order = left.argsort()
        torch.testing.assert_close(right[order][:-1], left[order][1:])  # no gap, no overlap
        assert float(panels._misses(rows, found)[own].sum()) * 2 == pytest.approx(float(error[i]), rel=1e-9)
    assert float(error.max()) <= 1e-10
    coarse, _ = panels.refine(rows, 1e-2)
    assert len(coarse.row) < len(found.row)


def test_scattered_sums_of_exponentials():
    total = torch.tensor([[0.5, -math.inf], [-2.0, 1.0]], dtype=F64)
    row, terms = (
        torch.tensor([0, 0, 1]),
        torch.tensor([[1.0, 2.0], [0.3, -700.0], [5.0, -math.inf]], dtype=F64),
    )
    wanted = [
        [math.log(math.exp(0.5) + math.exp(1.0) + math.exp(0.3)), 2.0],
        [math.log(math.exp(-2) + math.exp(5)), 1.0],
    ]
    torch.testing.assert_close(
        all_classes._scatter_logsumexp(total, row, terms), torch.tensor(wanted, dtype=F64)
    )
    nothing = all_classes._scatter_logsumexp(
        torch.full((1, 1), -math.inf, dtype=F64), torch.tensor([0]), torch.full((1, 1), -math.inf, dtype=F64)
    )
    assert float(nothing) == -math.inf
