"""Branches that nothing else takes: refusals, empty inputs, other devices, loops that come to their bound.

With these every branch of the mathematical modules is taken (docs/reliability.md says how it is measured).
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from dubito import _random, channels, integrals, links, losses, optim, penalties, targets
from dubito._tensors import check_distribution, checks_values
from dubito.crowd import CrowdLabels, aggregate, ask, ask_next, vote
from dubito.crowd._em import Shared, Sums
from dubito.errors import DubitoError
from dubito.integrals import expected, graphs, panels, rapid, search
from dubito.integrals.border import as_latent
from dubito.integrals.rows import Rows, make_rows
from dubito.losses import _normalizer
from dubito.segmentation.scores import SegmentationScores


def small() -> CrowdLabels:
    return CrowdLabels.from_dense([[0, 1, 1], [1, 1, -1], [0, 0, 0]], classes=2)


def test_values_are_read_on_the_cpu_alone() -> None:
    elsewhere = torch.zeros(2, 3, device="meta")
    assert not checks_values(elsewhere)
    check_distribution(elsewhere)
    check_distribution(torch.zeros(0, 3))
    with pytest.raises(DubitoError, match="two devices"):
        losses.nll(elsewhere, torch.tensor([0, 1]))
    ids = torch.zeros(2, dtype=torch.long, device="meta")
    assert channels.AnnotatorConfusion(4, 3).to("meta")(elsewhere, ids).shape == (2, 3)
    assert targets.smooth(ids, 3, 0.1).shape == (2, 3)
    words = torch.vmap(lambda seed: _random.permutation(5, seed))(torch.arange(3))
    assert [row.tolist() for row in words] == [_random.permutation(5, seed).tolist() for seed in range(3)]


def test_a_parameter_without_a_gradient_stays() -> None:
    moved, idle = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    moved.grad = torch.ones(2, 2)
    optim.LARS([moved, idle], lr=0.1).step()
    assert torch.equal(idle, torch.ones(2, 2))
    assert bool((moved < 1).all())


def test_channels_that_are_not_trained_and_penalties_alone() -> None:
    who, labels = torch.tensor([1, 0]), torch.tensor([0, 2])
    log_p = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    frozen = channels.AnnotatorConfusion(2, 3, sparse=True).requires_grad_(False)
    moving = log_p.clone().requires_grad_()
    frozen.log_given(moving, who, labels).sum().backward()
    dense = log_p.clone().requires_grad_()
    frozen(dense, who).gather(-1, labels.unsqueeze(-1)).sum().backward()
    torch.testing.assert_close(moving.grad, dense.grad)
    one, two = channels.AnnotatorConfusion(2, 3, sparse=True), channels.AnnotatorConfusion(2, 3)
    with one.sharing(who):
        one.log_given(log_p, who, labels)
        one.diagonals(who).sum().backward()
    two.diagonals(who).sum().backward()
    assert one.weight.grad is not None
    torch.testing.assert_close(one.weight.grad.to_dense(), two.weight.grad)


def test_sums_over_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes with equal sums: counts, prior, squares and likelihood double, posteriors stay."""
    monkeypatch.setattr("torch.distributed.all_reduce", lambda part: part.mul_(2))
    posterior, empty = torch.tensor([[0.25, 0.75]]), torch.zeros(0)
    found = Shared(True)(Sums(torch.ones(3), torch.tensor([1.0, 2.0]), -1.5, posterior, empty))
    assert found.counts.tolist() == [2.0, 2.0, 2.0]
    assert found.prior.tolist() == [2.0, 4.0]
    assert found.log_likelihood == -3.0
    assert found.posterior is posterior
    assert found.squares is empty
    assert Shared(True).number(2.5, posterior) == 5.0
    assert Shared(False).number(2.5, posterior) == 2.5


def test_crowd_refusals() -> None:
    crowd = small()
    with pytest.raises(DubitoError, match="no matrices to start from"):
        aggregate(crowd, "dawid-skene", start=aggregate(crowd, "vote"))
    with pytest.raises(DubitoError, match="items x classes"):
        vote.majority_vote(crowd, counts=torch.zeros(2, 2))
    for q, A in ((torch.ones(3) / 3, torch.eye(2)), (torch.ones(2) / 2, torch.ones(2))):
        with pytest.raises(DubitoError, match="differ in classes"):
            ask.expected_gain(q, A)
    with pytest.raises(DubitoError, match="must be real"):
        ask.expected_gain(torch.tensor([1, 0]), torch.eye(2))


def test_nobody_to_ask() -> None:
    empty = CrowdLabels([], [], [], classes=2, item_ids=["a"])
    assert len(ask_next(empty, aggregate(empty))) == 0


def test_axes_and_temperatures_that_do_not_exist() -> None:
    with pytest.raises(DubitoError, match="class axis"):
        links.log_softmax(torch.zeros(2, 3), dim=2)
    with pytest.raises(DubitoError, match="class axis"):
        links.log_softmax(torch.zeros(2, 3), dim=-3)
    with pytest.raises(DubitoError, match="real"):
        links.log_softmax(torch.zeros(2, 3), torch.tensor(1j))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"num_classes": 0}, "class"),
        ({"device": "nowhere"}, "device"),
        ({"bins": 0}, "bins"),
        ({"boundary": 1.0}, "borders"),
        ({"boundary": -0.1}, "borders"),
    ],
)
def test_scores_that_cannot_be(options: dict[str, object], word: str) -> None:
    with pytest.raises(DubitoError, match=word):
        SegmentationScores(**{"num_classes": 3, **options})
    with pytest.raises(DubitoError, match="no such sum"):
        SegmentationScores(3).sums("nothing")


def test_sampled_links_without_draws_and_without_temperature() -> None:
    mean, scale = torch.tensor([1.0, 0.0, 0.5]), torch.ones(3)
    for nothing in (torch.zeros(()), torch.zeros(0, 3)):
        with pytest.raises(DubitoError, match="no draw"):
            integrals.sampled_log_softmax(mean, scale, nothing)
    noise = torch.tensor([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    found = integrals.sampled_log_softmax(mean, scale, noise, temperature=0.0).exp()
    assert found.tolist() == pytest.approx([0.5, 0.5, 0.0])
    as_tensor = integrals.sampled_log_softmax(mean, scale, noise, temperature=torch.tensor(0.0)).exp()
    torch.testing.assert_close(found, as_tensor)


def test_integrals_refuse_methods_and_tolerances() -> None:
    mean, scale = torch.zeros(2, 3), torch.ones(2, 3)
    with pytest.raises(DubitoError, match="unknown method"):
        integrals.expected_log_softmax(mean, scale, method="qcm")
    for bad in (0.0, -1.0, math.nan):
        with pytest.raises(DubitoError, match="tolerance"):
            integrals.expected_log_softmax(mean, scale, tol=bad)
        with pytest.raises(DubitoError, match="tolerance"):
            integrals.expected_softmax_nll(mean, scale, torch.tensor([0, 1]), tol=bad)


def test_integrals_keep_full_precision_under_autocast() -> None:
    mean, scale = torch.tensor([[0.5, -1.0, 0.2]]), torch.tensor([[0.5, 1.0, 0.7]])
    plain = integrals.expected_softmax_nll(mean, scale, torch.tensor([1]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = integrals.expected_softmax_nll(mean, scale, torch.tensor([1]))
    assert torch.equal(plain, inside)


@pytest.mark.rel
@pytest.mark.parametrize("shape", [(1, 3), (5, 1), (1, 1), (4, 3), (2, 2, 3), (3,)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_integral_writes_into_its_inputs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Scorecard 20: one row or one class is contiguous when transposed, and must be copied all the same."""
    g = torch.Generator().manual_seed(0)
    mean = torch.randn(shape, generator=g, dtype=dtype)
    scale = torch.rand(shape, generator=g, dtype=dtype) + 0.1
    tau, target = torch.full((*shape[:-1], 1), 0.7, dtype=dtype), torch.zeros(shape[:-1], dtype=torch.int64)
    before = [x.clone() for x in (mean, scale, tau, target)]
    for method in ("auto", "qmc", "mc", "fixed"):
        source = torch.Generator().manual_seed(1)
        found = [
            integrals.expected_softmax_nll(mean, scale, target, temperature=tau, method=method, generator=s)
            for s in (source, torch.Generator().manual_seed(1))
        ]
        assert torch.equal(*found), f"the second call differs: {method}"
        if method != "fixed":
            integrals.expected_log_softmax(mean, scale, temperature=tau, method=method, generator=source)
    integrals.predictive_variance(mean, scale, temperature=tau, samples=8)
    assert all(torch.equal(a, b) for a, b in zip(before, (mean, scale, tau, target)))


def test_other_noise_is_sampled_and_many_rows_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    mean, scale = torch.randn(9, 3, generator=g), torch.rand(9, 3, generator=g) + 0.2
    target = torch.arange(9) % 3
    reports: list[object] = []
    integrals.expected_softmax_nll(mean, scale, target, noise="gumbel", report=reports.append)
    assert "no quadrature" in reports[0].reason
    whole = integrals.expected_softmax_nll(mean, scale, target, reduction="none")
    monkeypatch.setattr(rapid, "_ELEMENTS", 1)
    parts = integrals.expected_softmax_nll(mean, scale, target, reduction="none")
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-6)


def test_targets_and_penalties_that_cannot_be() -> None:
    with pytest.raises(DubitoError, match="distribution"):
        losses.bi_tempered(torch.zeros(1, 3), torch.tensor([[1.5, -0.5, 0.0]]), t1=0.8, t2=1.2)
    for penalty in (penalties.trace, penalties.frobenius, penalties.log_det):
        with pytest.raises(DubitoError, match="confusion matrices"):
            penalty(None)


def test_more_points_until_the_tolerance_or_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    mean, scale, factors = (torch.randn(s, generator=g) for s in ((4, 6), (4, 6), (4, 6, 4)))
    latent = as_latent(mean, scale.abs(), factors, 0.5, -1)
    monkeypatch.setattr(expected, "_MANY", 4 * expected._FEW)
    counts = [expected._enough(latent, tol, 1, "normal")[0] for tol in (1.0, 1e-30)]
    assert counts == [expected._FEW, 4 * expected._FEW]
    empty = as_latent(mean[:0], scale[:0], factors[:0], 0.5, -1)
    assert expected._enough(empty, 1e-30, 1, "normal")[0] == expected._FEW


def rows(n: int = 5, classes: int = 4) -> Rows:
    g = torch.Generator().manual_seed(1)
    mean = 3 * torch.randn(n, classes, generator=g, dtype=torch.float64)
    scale = torch.rand(n, classes, generator=g, dtype=torch.float64) + 0.1
    return make_rows(mean, scale, torch.full((n, 1), 0.7, dtype=torch.float64), torch.arange(n) % classes)


def test_searches_end_at_their_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a search is cut short it gives what it has: no NaN, and bounds not found yet are infinite."""
    long = search.find_mode(rows())
    monkeypatch.setattr(search, "_AT_MOST", 1)
    short = search.find_mode(rows())
    assert bool(short.isfinite().all())
    assert not torch.allclose(short, long)
    support, _ = search.find_support(rows(), 38.0, None)
    assert not any(bool(part.isnan().any()) for part in support)


def test_panels_stop_halving_at_their_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_DEPTH", 3)
    found, error = panels.refine(rows(), 1e-300)
    assert bool((error > 1e-300).all()), "what is left is told"
    assert len(found.row) > 0
    lost = rows()._replace(mean=torch.full((5, 4), math.nan, dtype=torch.float64))
    assert bool(panels._edges(lost).isnan().all()), "the search ends though nothing is found"


def test_a_gradient_alone_is_not_mapped() -> None:
    """Wrapped by `torch.func.grad` and by nothing else, values are there to be looked at: bad labels are told."""
    z, y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    found = torch.func.grad(lambda x: losses.nll(x, y))(z)
    expected = (z.softmax(-1) - torch.eye(3)[y]) / 4
    torch.testing.assert_close(found, expected)
    with pytest.raises(DubitoError, match="3"):
        torch.func.grad(lambda x: losses.nll(x, y + 1))(z)


def test_an_integral_that_is_reached_while_a_graph_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    found = graphs.apart_from_graphs(lambda x, *, by: x * by)(3.0, by=2.0)
    assert found == 6.0


def test_tangents_of_a_normalizer_are_differences() -> None:
    """Called by hand: within `torch.func.jvp` no line is seen by a measurement of coverage."""
    a = torch.tensor([[0.3, -1.2, 2.0]], dtype=torch.float64)
    s, tangent = torch.full((1, 1), 1.7, dtype=torch.float64), torch.tensor([[0.5, -1.0, 0.25]]).double()

    def normalizer(x: torch.Tensor) -> torch.Tensor:
        return _normalizer.Normalizer.apply(x, s, None)

    context = SimpleNamespace(saved_tensors=(a, s, normalizer(a)))
    step = 1e-5 * tangent
    differences = (normalizer(a + step) - normalizer(a - step)) / 2e-5
    torch.testing.assert_close(
        _normalizer.WithTangents.jvp(context, tangent), differences, rtol=1e-6, atol=1e-9
    )
