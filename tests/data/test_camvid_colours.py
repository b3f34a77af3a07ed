"""CamVid with the colours of its authors: every colour has its class, both layouts, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from dubito.data import load
from dubito.data._pixel_sets import CAMVID_COLOURS as COLOURS
from dubito.data.classes import CAMVID
from dubito.errors import DubitoError

# Some lines of label_colors.txt, as published, and the class of the eleven.
PUBLISHED = [
    ((128, 128, 128), "Sky"), ((192, 0, 128), "Building"), ((64, 192, 0), "Building"), ((192, 192, 128), "Pole"),
    ((128, 0, 192), "Road"), ((0, 0, 192), "Pavement"), ((192, 192, 0), "Tree"), ((0, 64, 64), "SignSymbol"),
    ((64, 64, 128), "Fence"), ((192, 128, 192), "Car"), ((64, 64, 0), "Pedestrian"), ((0, 128, 192), "Bicyclist"),
]  # fmt: skip


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path)


def mask():
    """Two rows of six published colours and one of void."""
    colours = [colour for colour, _ in PUBLISHED]
    return np.array([colours[:6], colours[6:], [(0, 0, 0)] * 6])


def check(data):
    expected = [CAMVID.index(name) for _, name in PUBLISHED]
    assert data.labels[0, :2].flatten().tolist() == expected
    assert (data.labels[0, 2] == -100).all()
    assert data.classes == CAMVID


def test_thirty_one_colours_for_eleven_classes():
    assert list(COLOURS) == list(CAMVID)
    assert len({c for several in COLOURS.values() for c in several}) == 31


def test_as_the_authors_have_it(tmp_path):
    base = tmp_path / "CamVid"
    write(base / "701_StillsRaw_full/0016E5_07959.png", np.full((3, 6, 3), 9))
    write(base / "LabeledApproved_full/0016E5_07959_L.png", mask())
    with pytest.raises(DubitoError, match="CamVid without its split"):
        load("camvid", "val", root=tmp_path)
    (base / "val.txt").write_text(
        "/SegNet/CamVid/val/0016E5_07959.png /SegNet/CamVid/valannot/0016E5_07959.png\n"
    )
    check(load("camvid", "val", root=tmp_path))


def test_sorted_into_splits(tmp_path):
    base = tmp_path / "camvid"
    write(base / "train/0001TP_006690.png", np.full((3, 6, 3), 9))
    write(base / "train_labels/0001TP_006690_L.png", mask())
    check(load("camvid", "train", root=tmp_path))
    wrong = mask()
    wrong[0, 0] = (1, 2, 3)
    write(base / "train_labels/0001TP_006690_L.png", wrong)
    with pytest.raises(DubitoError, match=r"no class at .*0001TP_006690_L.png, row 0, column 0"):
        load("camvid", "train", root=tmp_path)
    (base / "train_labels/0001TP_006690_L.png").unlink()
    with pytest.raises(DubitoError, match="image without a mask"):
        load("camvid", "train", root=tmp_path)
