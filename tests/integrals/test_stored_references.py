"""The targets of accuracy, on stored values and gradients of independent code and mpmath (`softmax_references`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dubito.integrals import expected_log_softmax, expected_softmax_nll

STORED = Path(__file__).resolve().parents[2] / "results" / "benchmarks" / "softmax_references.jsonl"


def stored(classes: int) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in STORED.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if len(row["mean"]) == classes]


@pytest.mark.rel
@pytest.mark.parametrize(
    ("dtype", "shift"), [(torch.float64, 0.0), (torch.float32, 0.0), (torch.float32, 8192.0)]
)
@pytest.mark.parametrize("classes", [2, 10, 21])
def test_value_gradients_and_honesty(classes, dtype, shift):
    """Scorecard 9: log p to 1e-6 or 1e-4, gradients to 1e-4 of the row's, no row further off than it says."""
    rows = stored(classes)
    assert len(rows) >= 28
    assert {row["tau"] for row in rows} == {0.0, 0.01, 0.05, 0.5, 1.0, 5.0, 100.0}

    def column(name):
        return torch.tensor([row[name] for row in rows], dtype=torch.float64)

    given = (column("mean") + shift, column("scale"), column("tau").unsqueeze(-1))
    inputs = [x.to(dtype).requires_grad_() for x in given]
    target, log_p = torch.tensor([row["target"] for row in rows]), column("log_p")
    said: list[Any] = []
    options = {"temperature": inputs[2], "report": said.append}
    losses = expected_softmax_nll(*inputs[:2], target, method="quadrature", reduction="none", **options)
    off = (losses.detach().double() + log_p).abs()
    assert bool((off <= said[0].error.double() + 1e-12).all())
    digits = 1e-6 if dtype == torch.float64 else 1e-4
    assert bool((off <= digits * (log_p.abs() / 100).clamp(min=1.0)).all())
    found = torch.cat(torch.autograd.grad(-losses.sum(), inputs), -1).double()
    wanted = torch.cat([column("d_mean"), column("d_scale"), column("d_tau").unsqueeze(-1)], -1)
    size = wanted.abs().amax(-1).clamp(min=1e-10)  # p is 1 below
    assert float(((found - wanted).abs().amax(-1) / size).max()) < 1e-4
    every = expected_log_softmax(*inputs[:2], **options).detach().double()
    p_off = (every.gather(-1, target.unsqueeze(-1)).squeeze(-1).exp() - log_p.exp()).abs()
    assert bool((p_off <= said[1].error.double() + 1e-6).all())
    assert bool((p_off <= 1e-4).all())
