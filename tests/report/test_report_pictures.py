"""Pictures with captions on the page: shown once, names escaped, strange bytes refused."""

from __future__ import annotations

import numpy as np
import pytest

from dubito import DubitoError
from dubito._report import Picture, ReportData, render
from dubito.segmentation.outputs import strip


def test_pictures_have_a_section_and_escaped_names():
    panel = np.zeros((8, 12, 3), np.uint8)
    page = render(
        ReportData("Masks", pictures=[Picture("<script>alert(1)</script>", "IoU <b>", strip([panel] * 2))])
    )
    assert 'id="pictures"' in page
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("data:image/jpeg;base64,") == 1
    assert 'id="pictures"' not in render(ReportData("Masks"))


def test_a_picture_must_be_a_picture():
    with pytest.raises(DubitoError, match="cannot show this thumbnail"):
        render(ReportData("Masks", pictures=[Picture("x", "y", b"<svg onload=alert(1)>")]))


@pytest.mark.parametrize("shape", [(40, 4000, 3), (4000, 40, 3), (700, 900, 3)])
def test_strips_stay_small_whatever_the_shape(shape):
    noise = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)
    data = strip([noise] * 5)
    assert data.startswith(b"\xff\xd8")
    assert len(data) < 1 << 18
