"""More details that only a change of one sign or constant would show: channels, distillation, votes, uncertainty.

Each was found by a mutant that no other test noticed (docs/mutation.md).
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from dubito import channels, losses
from dubito.channels import _core
from dubito.crowd import CrowdLabels, vote
from dubito.errors import DubitoError


def widths(monkeypatch: pytest.MonkeyPatch, block: int, log_p: Tensor, log_T: Tensor) -> list[int]:
    """The widths of the blocks in which a product is made, which is also compared with the plain one."""
    seen: list[int] = []
    whole = _core._through

    def noted(a: Tensor, b: Tensor) -> Tensor:
        seen.append(b.shape[-1])
        return whole(a, b)

    with monkeypatch.context() as change:
        change.setattr(_core, "BLOCK", block)
        change.setattr(_core, "_through", noted)
        made = _core.through(log_p, log_T)
    torch.testing.assert_close(made, whole(log_p, log_T), rtol=0, atol=0)
    return seen


def test_large_products_are_made_in_blocks_of_observed_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    log_p = torch.randn(2, 2, 4, generator=g).log_softmax(-1)
    log_T = torch.randn(2, 4, 10, generator=g).log_softmax(-1)
    assert widths(monkeypatch, 64, log_p, log_T) == [4, 4, 2], "2 x 2 rows of 4 classes, 64 numbers at a time"
    assert widths(monkeypatch, 1, log_p, log_T) == [1] * 10, "never less than one class"
    assert widths(monkeypatch, 160, log_p, log_T) == [10]
    assert widths(monkeypatch, 159, log_p, log_T) == [9, 1]
    assert widths(monkeypatch, 10, log_p[0, :0], log_T[0]) == [10], "nothing is one block"


def test_a_given_start_is_the_scale_of_the_default_one() -> None:
    eye = torch.eye(3, dtype=torch.float64)
    found = _core.start(3, eye, 0.9)
    torch.testing.assert_close(found.diagonal(), torch.ones(3, dtype=torch.float64))
    off = math.log(math.expm1(1e-6 * math.log1p(math.e)))
    assert float(found[0, 1]) == pytest.approx(off)
    with pytest.raises(DubitoError, match="classes"):
        _core.start(4, eye, 0.9)


def test_distillation_at_the_ends_of_what_is_allowed() -> None:
    g = torch.Generator().manual_seed(1)
    student, teacher = torch.randn(2, 5, 3, generator=g, dtype=torch.float64).unbind()
    uniform = losses.distillation(student, teacher, smoothing=1.0)
    torch.testing.assert_close(uniform, -(student / 2).log_softmax(-1).mean())
    for bad in (1.25, -0.25):
        with pytest.raises(DubitoError, match="smoothing"):
            losses.distillation(student, teacher, smoothing=bad)
    for name in ("temperature", "student_temperature"):
        for bad in (0.0, -1.0):
            with pytest.raises(DubitoError, match=name):
                losses.distillation(student, teacher, **{name: bad})
    first = losses.distillation(student, teacher, dim=-2)
    torch.testing.assert_close(first, losses.distillation(student.T, teacher.T))
    torch.testing.assert_close(first, losses.distillation(student, teacher, dim=0))
    for bad_axis in (2, -3):
        with pytest.raises(DubitoError, match="class axis"):
            losses.distillation(student, teacher, dim=bad_axis)


def test_bi_tempered_knows_its_axis_from_either_end() -> None:
    z = torch.zeros(1000, 2, dtype=torch.float64)
    for dim in (0, -2):
        with pytest.raises(DubitoError, match="1000 classes"):
            losses.bi_tempered(z, torch.tensor([0, 1]), t1=0.8, t2=11.1, dim=dim)
    assert bool(losses.bi_tempered(z, torch.zeros(1000, dtype=torch.int64), t1=0.8, t2=11.1).isfinite())


def table(*rows: tuple[int, ...], classes: int = 4) -> CrowdLabels:
    """Items whose labels of each class are counted by a row."""
    items = [i for i, row in enumerate(rows) for n in row for _ in range(n)]
    labels = [k for row in rows for k, n in enumerate(row) for _ in range(n)]
    seen: dict[int, int] = {}
    people = [seen[i] for i in items if not seen.update({i: seen.get(i, -1) + 1})]  # type: ignore[func-returns-value]
    return CrowdLabels(items, people, labels, classes=classes)


def test_ties_are_drawn_evenly_among_the_tied_alone() -> None:
    crowd = table((2, 0, 1, 0), *[(0, 1, 0, 1)] * 300, *[(1, 1, 1, 1)] * 400, (0, 0, 0, 3))
    codes, tied = vote.majority_vote(crowd, seed=3)
    assert tied.tolist() == [False, *[True] * 700, False]
    assert (int(codes[0]), int(codes[-1])) == (0, 3)
    two, four = codes[1:301].bincount(minlength=4), codes[301:701].bincount(minlength=4)
    assert two[[0, 2]].tolist() == [0, 0]
    assert all(120 < n < 180 for n in two[[1, 3]].tolist())
    assert all(70 < n < 130 for n in four.tolist())
    draws = torch.rand(702, generator=torch.Generator().manual_seed(3))
    expected = [[1, 3][int(2 * u)] for u in draws[1:301]] + [int(4 * u) for u in draws[301:701]]
    assert codes[1:701].tolist() == expected, "the draw belongs to the item"


def test_votes_in_pieces_are_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = table(*[(2, 0, 1, 0), (0, 1, 0, 1), (0, 1, 3, 0)] * 7)
    whole = vote.vote_counts(crowd), *vote.majority_vote(crowd, seed=1)
    for size in (1, 8, 16, 24, len(crowd), 1000):
        monkeypatch.setattr(vote, "PIECE", size)
        monkeypatch.setattr(vote.pieces, "__defaults__", (size,))
        if size >= 8:
            for a, b in zip(whole, (vote.vote_counts(crowd), *vote.majority_vote(crowd, seed=1))):
                assert torch.equal(a, b)
        slices = list(vote.pieces(len(crowd)))
        assert [i for part in slices for i in range(part.start, part.stop)] == list(range(len(crowd)))
        assert max(part.stop - part.start for part in slices) <= size


def test_shares_without_votes_are_uniform() -> None:
    found = vote.shares(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 3.0]]))
    assert found.tolist() == [[0.25] * 4, [1.0, 0.0, 0.0, 0.0], [0.25, 0.0, 0.0, 0.75]]


def naive_given(weight: Tensor, log_p: Tensor, who: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each label and the diagonals of everybody, from the definition."""
    s = torch.nn.functional.softplus(weight, threshold=700)
    A = s / s.sum(-1, keepdim=True)
    q = torch.stack([(log_p[m].exp() * A[who[m], :, labels[m]]).sum() for m in range(len(labels))])
    return q.log(), A.diagonal(dim1=-2, dim2=-1)


@pytest.mark.parametrize("shift", [0.0, -80.0], ids=["ordinary", "tiny row sums"])
def test_sparse_matrices_of_annotators_equal_dense_ones(shift: float) -> None:
    g = torch.Generator().manual_seed(2)
    who, labels = torch.tensor([4, 1, 4, 0, 1, 4]), torch.tensor([0, 2, 1, 1, 0, 2])
    start = torch.randn(5, 3, 3, generator=g, dtype=torch.float64) + shift
    log_p = torch.randn(6, 3, generator=g, dtype=torch.float64).log_softmax(-1)
    given, stake = torch.rand(6, generator=g).double(), torch.rand(6, 3, generator=g).double()
    found = []
    for share in (True, False, None):
        channel = channels.AnnotatorConfusion(5, 3, sparse=share is not None).double()
        weight = channel.weight
        with torch.no_grad():
            weight.copy_(start)
        inputs = log_p.clone().requires_grad_()
        if share is None:
            log_q, diagonals = naive_given(weight, inputs, who, labels)
            log_q, diagonals = log_q, diagonals[who]
        elif share:
            with channel.sharing(who):
                log_q, diagonals = channel.log_given(inputs, who, labels), channel.diagonals(who)
        else:
            log_q, diagonals = channel.log_given(inputs, who, labels), channel.diagonals(who)
        ((log_q * given).sum() + (diagonals * stake).sum()).backward()
        assert weight.grad is not None
        gradient = weight.grad.to_dense() if weight.grad.is_sparse else weight.grad
        found.append((log_q.detach(), diagonals.detach(), gradient, inputs.grad))
    for form in found[:2]:
        for ours, wanted in zip(form, found[2]):
            torch.testing.assert_close(ours, wanted, rtol=1e-9, atol=1e-12)


def test_labels_that_nobody_could_give_cost_a_finite_loss() -> None:
    channel = channels.AnnotatorConfusion(2, 3, sparse=True).double()
    log_p = torch.full((2, 3), -torch.inf, dtype=torch.float64)
    log_p[1, 2] = 0.0
    log_p.requires_grad_()
    log_q = channel.log_given(log_p, torch.tensor([0, 1]), torch.tensor([0, 2]))
    assert float(log_q[0].detach()) == pytest.approx(_core.IMPOSSIBLE)
    torch.testing.assert_close(log_q[1], channel.log_matrices()[1, 2, 2])
    log_q.sum().backward()
    assert log_p.grad is not None
    assert log_p.grad.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_two_passes_two_members_and_masks_of_their_own() -> None:
    from torch import nn

    from dubito import heads, uncertainty
    from dubito.data import LabelledData
    from dubito.model import Model

    g = torch.Generator().manual_seed(3)
    model = Model(nn.Sequential(nn.Dropout(0.5)), heads.Point(4, 3, generator=g))
    data = LabelledData(torch.randn(9, 4, generator=g), torch.zeros(9, dtype=torch.int64))
    two = uncertainty.mc_dropout(model, data, passes=2, seed=1)
    assert float(two.epistemic.max()) > 0
    plain = uncertainty.ensemble([model, model], data)
    torch.testing.assert_close(plain.log_p, model.eval()(data.inputs).detach(), rtol=1e-5, atol=1e-6)
    # Each pass has a mask, the first one too: no pass is the plain prediction.
    passes = [uncertainty._log_probs(model, data, 1, i, 1024) for i in (1, 2)]
    torch.testing.assert_close(two.log_p, torch.stack(passes).logsumexp(0) - math.log(2))
    assert not torch.allclose(passes[0], plain.log_p)
    with pytest.raises(DubitoError, match="members"):
        uncertainty.decompose(torch.zeros(0, 3))
    assert uncertainty.decompose(torch.zeros(1, 1)).total.tolist() == 0.0
