"""Numbers below full precision count as 0 while a model is trained on the CPU, and only then."""

from __future__ import annotations

import torch
from small import network, problem

from dubito.train import fit


def _flushed() -> bool:
    return float(torch.tensor(1e-39) * 1.0) == 0.0


def test_they_are_flushed_while_training_and_kept_before_and_after() -> None:
    seen = []

    def watch(step: int, steps: int) -> float:
        seen.append(_flushed())
        return 1.0

    assert not _flushed()
    fit(network(), problem(20), schedule=watch, epochs=1, batch_size=10)
    assert seen == [True, True]
    assert not _flushed()
    torch.set_flush_denormal(True)
    try:
        fit(network(), problem(20), epochs=1, batch_size=10)
        assert _flushed()
    finally:
        torch.set_flush_denormal(False)
