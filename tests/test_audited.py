"""The watch on memory that tests of hostile files rely on."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from audited import MOST, forget_peak, peak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_peak_is_seen_after_a_larger_one() -> None:
    np.ones((2 * MOST) // 8).sum()
    forget_peak()
    before = peak()
    np.ones((MOST + (64 << 20)) // 8).sum()
    assert peak() - before > MOST
    forget_peak()
    assert peak() - before < MOST
