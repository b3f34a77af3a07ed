"""The hierarchical model's evidence, steps and uncertainty against their definitions, written out densely."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dubito.crowd import CrowdLabels, aggregate
from dubito.crowd._hierarchical import Cells, Hierarchical, diagonal, sway
from dubito.crowd._rules import rasch

K, R = 3, 4
MODEL = Hierarchical(strength=4.0)


@pytest.fixture(scope="module")
def problem() -> tuple[Cells, dict[str, Tensor], Tensor]:
    """Expected counts of a small crowd, some parameters of the prior, and the counts as a table (R, K, K)."""
    g = torch.Generator().manual_seed(2)
    table = torch.randint(0, K, (20, R), generator=g)
    layout = aggregate(CrowdLabels.from_dense(table.numpy(), classes=K), "hierarchical").state.layout
    counts = 3 * torch.rand(len(layout.key_label), K, generator=g, dtype=torch.float64)
    counts[counts < 0.6] = 0.0
    dense = torch.zeros(R, K, K, dtype=torch.float64)
    for key, (r, j) in enumerate(zip(layout.key_annotator.tolist(), layout.key_label.tolist())):
        dense[r, :, j] = counts[key]
    pattern = torch.rand(K, K, generator=g, dtype=torch.float64) * (1 - torch.eye(K, dtype=torch.float64))
    hyper = {
        "easiness": torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64),
        "ability": torch.tensor([1.0, -0.5, 0.2, 2.0], dtype=torch.float64),
        "strength": torch.tensor([1.5, 4.0, 9.0], dtype=torch.float64),
        "pattern": pattern / pattern.sum(1, keepdim=True),
        "penalty": torch.tensor(-1.25, dtype=torch.float64),
    }
    return Cells.of(layout, counts, layout.by_annotator(counts)), hyper, dense


def prior_mean(hyper: dict[str, Tensor]) -> Tensor:
    """M[r, k, j]: the skill on the diagonal, the crowd's pattern of errors off it."""
    M = torch.zeros(R, K, K, dtype=torch.float64)
    for r in range(R):
        for k in range(K):
            a = 1 / (1 + math.exp(-float(hyper["easiness"][k] + hyper["ability"][r])))
            for j in range(K):
                M[r, k, j] = a if j == k else (1 - a) * float(hyper["pattern"][k, j])
    return M


def evidence(log_s: Tensor, hyper: dict[str, Tensor], counts: Tensor) -> Tensor:
    """log of the product of Dirichlet-multinomials, Gamma(2, 1/4) on each s without constants, and the penalty."""
    s, M = log_s.exp(), prior_mean(hyper)
    total = hyper["penalty"] + (s.log() - 0.25 * s).sum()
    for r in range(R):
        for k in range(K):
            total = total + torch.lgamma(s[k]) - torch.lgamma(s[k] + counts[r, k].sum())
            for j in range(K):
                if counts[r, k, j] > 0:
                    alpha = s[k] * M[r, k, j]
                    total = total + torch.lgamma(alpha + counts[r, k, j]) - torch.lgamma(alpha)
    return total


@pytest.mark.rel
def test_evidence_equals_its_sums(problem: tuple[Cells, dict[str, Tensor], Tensor]) -> None:
    """Scorecard 1: the evidence of the hierarchical model, cell by cell."""
    cells, hyper, counts = problem
    wanted = float(evidence(hyper["strength"].log(), hyper, counts))
    assert MODEL._evidence(cells, hyper) == pytest.approx(wanted, rel=1e-12)
    torch.testing.assert_close(diagonal(hyper), prior_mean(hyper).diagonal(dim1=1, dim2=2))


@pytest.mark.rel
@pytest.mark.parametrize("strength", [(1.5, 4.0, 9.0), (0.1, 0.3, 60.0), (1e-3, 1e3, 2.0)])
def test_proposals_for_the_strength(
    problem: tuple[Cells, dict[str, Tensor], Tensor], strength: tuple[float, ...]
) -> None:
    """Scorecard 1: Newton in log s by derivatives of the evidence, Minka's fixed point, no change."""
    cells, hyper, counts = problem
    hyper = {**hyper, "strength": torch.tensor(strength, dtype=torch.float64)}
    s = hyper["strength"]
    log_s = s.log().requires_grad_()
    (slope,) = torch.autograd.grad(evidence(log_s, hyper, counts), log_s, create_graph=True)
    bend = torch.stack([torch.autograd.grad(slope[k], log_s, retain_graph=True)[0][k] for k in range(K)])
    step = [
        max(-2.0, min(2.0, -float(d) / float(c) if c < 0 else math.copysign(1.0, float(d))))
        for d, c in zip(slope, bend)
    ]
    bold, fixed, same = MODEL._steps(cells, hyper)
    torch.testing.assert_close(bold, s * torch.tensor(step, dtype=torch.float64).exp(), rtol=1e-7, atol=0)
    M, up, down = prior_mean(hyper), torch.zeros(K).double(), torch.zeros(K).double()
    for r in range(R):
        for k in range(K):
            down[k] += s[k] * (torch.digamma(counts[r, k].sum() + s[k]) - torch.digamma(s[k]))
            for j in range(K):
                alpha = s[k] * M[r, k, j]
                if counts[r, k, j] > 0:
                    up[k] += alpha * (torch.digamma(alpha + counts[r, k, j]) - torch.digamma(alpha))
    torch.testing.assert_close(fixed, s * (up + 1) / (down + 0.25 * s), rtol=1e-8, atol=0)
    assert torch.equal(same, s)


def test_the_first_proposal_that_loses_nothing_is_taken(
    problem: tuple[Cells, dict[str, Tensor], Tensor],
) -> None:
    cells, hyper, _ = problem
    values = {
        x: MODEL._evidence(cells, {**hyper, "strength": x * hyper["strength"]}) for x in (0.1, 1.0, 0.9)
    }
    order = sorted(values, key=values.__getitem__)
    low, middle, high = ({**hyper, "strength": x * hyper["strength"]} for x in order)
    assert MODEL._best(cells, [middle, low, high])[0] is high
    assert MODEL._best(cells, [high, low, middle])[0] is high
    assert MODEL._best(cells, [low, middle, high])[0] is middle, "the first, not the best"
    assert MODEL._best(cells, [low, {**low}])[0] is not low, "a tie is taken"
    assert MODEL._best(cells, [low, high])[1] == values[order[2]]


@pytest.mark.rel
def test_sway_equals_its_formula(problem: tuple[Cells, dict[str, Tensor], Tensor]) -> None:
    """Scorecard 1: how much an uncertain skill moves the diagonals."""
    _, hyper, _ = problem
    n = torch.tensor([[5.0, 0.5, 30.0]] * R, dtype=torch.float64)
    found = sway(hyper, n)
    for r in range(R):
        known = 1.0
        for k in range(K):
            a, s, m = float(diagonal(hyper)[r, k]), float(hyper["strength"][k]), float(n[r, k])
            known += m * (s + 1) / (m + s) * a * (1 - a)
        for k in range(K):
            a, s, m = float(diagonal(hyper)[r, k]), float(hyper["strength"][k]), float(n[r, k])
            assert float(found[r, k]) == pytest.approx(
                s / (m + s) * a * (1 - a) / math.sqrt(known), rel=1e-12
            )


def test_skills_stay_off_the_ends() -> None:
    hyper = {"easiness": torch.zeros(2).double(), "ability": torch.tensor([60.0, -60.0, 0.5]).double()}
    found = diagonal(hyper)
    middle = 1 / (1 + math.exp(-0.5))
    torch.testing.assert_close(
        found[:, 0], torch.tensor([1 - 1e-6, 1e-6, middle], dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_a_count_of_next_to_nothing_is_none(problem: tuple[Cells, dict[str, Tensor], Tensor]) -> None:
    _, _, dense = problem
    table = torch.randint(0, K, (20, R), generator=torch.Generator().manual_seed(2))
    layout = aggregate(CrowdLabels.from_dense(table.numpy(), classes=K), "hierarchical").state.layout
    counts = dense[layout.key_annotator, :, layout.key_label]
    assert (counts == 0).any()
    plain = Hierarchical(4.0).fit(layout, counts, None, burning=False)
    easiness, ability, pattern, _ = rasch(layout, counts, None, 1.0)  # abilities are standard normal
    for name, wanted in (("easiness", easiness), ("ability", ability), ("pattern", pattern)):
        torch.testing.assert_close(plain.hyper[name], wanted)
    hardly = Hierarchical(4.0).fit(layout, counts.masked_fill(counts == 0, 1e-13), None, burning=False)
    torch.testing.assert_close(plain.mean, hardly.mean, rtol=0, atol=0)
    assert plain.penalty == hardly.penalty
    assert Hierarchical(4.0).burn_in == 0  # its prior follows at every step
