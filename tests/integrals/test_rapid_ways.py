"""The quick rule of the CPU: where its nodes lie, in which parts rows are worked on, and who is looked at again."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_rows import F64, close, made

from dubito.integrals import grid, rapid
from dubito.integrals.gumbel_normal import ROOT_C
from dubito.integrals.likelihood import Answer


def test_nodes_and_which_of_them_count():
    s, picks = rapid._nodes.__wrapped__(13)
    close(s[:, 0], np.linspace(-1, 1, 13))
    for row, step in enumerate((1, 2, 4)):
        assert picks[row].tolist() == [step if n % step == 0 else 0 for n in range(13)]
    numbers, sums = rapid._points.__wrapped__()
    assert numbers[:, 0].tolist() == list(range(40))
    assert sums.tolist() == [[1.0] * 40, [float(n) for n in range(40)]]


@pytest.mark.parametrize("tau", [0.0, 0.5])
@pytest.mark.parametrize("drop", [9.0, 30.0])
def test_centre_and_ends(tau, drop):
    """From one sweep: the mean of the integrand; as many steps as lie within the drop, half on each side."""
    inputs = made(tau, seed=5)
    inputs[0][1] += torch.tensor([0.0, -9.0, 0.0, 0.0])  # in one row a target far below
    rows = grid.columns(*inputs)
    found = rapid.find(rows, drop)
    width, cos, sin, _ = rows.target.double()
    for b in range(3):
        far = math.sqrt(2.2 * drop)
        top = max(0.0, float((rows.mean[:, b] + 2 * rows.width[:, b]).max()))
        low = -far * float(width[b])
        high = top + float(width[b] * (cos[b] * far + sin[b] * (math.log(4) + drop) / ROOT_C))
        step = (high - low) / 39
        t = torch.tensor([low + n * step for n in range(40)])
        value = grid.sweep(rows, t.unsqueeze(-1).expand(-1, 3))[:, b].double()
        value = value - value.max()
        inside = ((value + drop + 3) / 5 + 0.5).clamp(0, 1)
        mass, n = value.clamp(min=-60).exp(), torch.arange(40, dtype=F64)
        centre, middle = (n * mass).sum() / mass.sum(), (n * inside).sum() / inside.sum()
        half = inside.sum() / 2 + 0.6 - 0.5
        close(found.centre[b], low + step * centre, 1e-3, 1e-3)
        close(found.left[b], step * (half + centre - middle), 1e-3, 1e-3)
        close(found.right[b], step * (half + middle - centre), 1e-3, 1e-3)


def test_parts_of_rows():
    """As many rows at a time as fit; one part stays whole."""
    inputs = (torch.zeros(7, 10), torch.arange(7))

    def sizes(elements):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rapid, "_ELEMENTS", elements)
            return [len(part[0]) for part in rapid._split(inputs, 5)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rapid, "_ELEMENTS", 50 * 7)
        assert rapid._split(inputs, 5)[0] is inputs
    assert sizes(50 * 3) == [3, 3, 1]
    assert sizes(50 * 7 - 1) == [6, 1]
    assert sizes(1) == [1] * 7
    assert rapid._split(inputs, 5)[0] is inputs
    parts = [rapid.Stretch(*(torch.full((n,), float(n + i)) for i in range(3))) for n in (2, 1)]
    assert rapid._joined(parts[:1]) is parts[0]
    joined = rapid._joined(parts)
    assert [x.tolist() for x in joined] == [[2.0, 2.0, 1.0], [3.0, 3.0, 2.0], [4.0, 4.0, 3.0]]


@pytest.mark.parametrize(
    ("tol", "drop"), [(1e-5, 4 + 5 * math.log(10)), (1e-2, 8.60517), (0.5, 8.60517), (1e-30, 38.0)]
)
def test_rows_that_missed_are_looked_at_again(tol, drop, monkeypatch):
    """How far down the ends are sought; only rows that missed come back, with twice the nodes, a quarter wider."""
    calls, drops = [], []
    ends = [torch.tensor([float(i), i + 1.0, i + 2.0, i + 3.0]) for i in (0, 10, 20)]
    monkeypatch.setattr(rapid, "find", lambda rows, drop: drops.append(drop) or rapid.Stretch(*ends))

    def integrate(rows, stretch, count):
        calls.append((rows, stretch, count))
        size = rows.mean.shape[1]
        first = len(calls) == 1
        error = torch.tensor([0.5 * tol, 2 * tol, tol, math.nan]) if first else torch.zeros(size)
        settled = torch.tensor([False, True, True, True]) if first else torch.ones(size, dtype=torch.bool)
        value = torch.full((size,), float(len(calls)))
        wide = value.unsqueeze(-1).expand(size, 3).clone()
        return Answer(value, error, settled, wide, wide.clone(), wide[:, :1].clone())

    monkeypatch.setattr(rapid, "integrate", integrate)
    inputs = made(0.5, rows=4, classes=3)
    answer = rapid.rapid(*inputs, tol)
    assert drops == [pytest.approx(drop, rel=1e-5)]
    assert [count for _, _, count in calls] == [29, 57]
    again = calls[1]
    some = [0, 1, 3]
    close(again[1].centre, ends[0][some].double())
    close(again[1].left, 1.25 * ends[1][some].double())
    close(again[1].right, 1.25 * ends[2][some].double())
    for found, wanted in zip(again[0], grid.columns(*(x[some] for x in inputs))):
        assert torch.equal(found, wanted)
    assert answer.log_p.tolist() == [2.0, 2.0, 1.0, 2.0]
    assert answer.d_mean[:, 2].tolist() == [2.0, 2.0, 1.0, 2.0]
    assert answer.d_temperature[:, 0].tolist() == [2.0, 2.0, 1.0, 2.0]
    assert bool(answer.settled.all())
