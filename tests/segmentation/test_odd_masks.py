"""Image and mask files of other kinds: bits, colours, signs, gaps, formats that change numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito._product.tasks import FitJob
from dubito.data import mask_folders
from dubito.segmentation import command
from dubito.segmentation.shapes import shapes

MASK = (np.arange(80).reshape(8, 10) % 3).astype(np.uint8)
GREY = (np.arange(80).reshape(8, 10) * 3).astype(np.uint8)


def read(root, image, mask, suffix="png", of_mask="png", **options):
    for name, array, ending in (("i", image, suffix), ("m", mask, of_mask)):
        (root / name).mkdir()
        picture = array if isinstance(array, Image.Image) else Image.fromarray(array)
        picture.save(root / name / f"a.{ending}")
    return mask_folders(root / "i", root / "m", **options)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_grey_images_of_sixteen_bits_are_not_clipped(tmp_path, suffix):
    data = read(tmp_path, GREY.astype(np.uint16) * 256 + 77, MASK, suffix)
    assert torch.equal(data.gather(torch.tensor([0]))[0, 1], torch.from_numpy(GREY))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_numbers_without_a_white_are_refused(tmp_path, kind):
    data = read(tmp_path, GREY.astype(kind), MASK, "tif")
    with pytest.raises(DubitoError, match=r"no known white at .*a\.tif: expected 8 or 16 bits"):
        data.gather(torch.tensor([0]))


def test_void_may_lie_below_zero(tmp_path):
    data = read(tmp_path, GREY, MASK.astype(np.int32) - 1, of_mask="tif", void=-1)
    assert torch.equal(data.labels[0].long(), torch.from_numpy(np.where(MASK == 0, -100, MASK - 1.0)).long())


def test_among_colours_blue_is_void_only_if_one_says_so(tmp_path):
    colours = np.array([[0, 0, 0], [128, 0, 0], [0, 0, 255]], np.uint8)[MASK]
    with pytest.raises(DubitoError, match="expected #000000, #800000, got #0000ff"):
        read(tmp_path, GREY, colours, values=["#000000", "#800000"])
    data = mask_folders(tmp_path / "i", tmp_path / "m", values=["#000000", "#800000"], void="#0000ff")
    assert torch.equal(
        data.labels[0].long(), torch.from_numpy(np.where(MASK == 2, -100, MASK.astype(np.int64))).long()
    )


@pytest.mark.parametrize(
    ("mask", "ending", "said"),
    [
        (MASK.astype(np.float32), "tif", r"not a mask at .*a\.tif.*got floats"),
        (Image.fromarray(np.stack([MASK, MASK + 250], -1), "LA"), "png", "got grey with transparency"),
        (MASK, "jpg", "changes the numbers of a mask.*got JPEG; export the mask anew, as PNG"),
        (np.where(MASK == 1, 65535, MASK.astype(np.uint16)), "png", r"expected 0 to 9999, got 65535.*--void"),
        (np.where(MASK == 1, 9, MASK).astype(np.uint8), "png", r"expected 0, 1, 2, 255, got 9.*--values"),
    ],
)  # fmt: skip
def test_refusals_say_what_a_file_holds(tmp_path, mask, ending, said):
    options = {"classes": ["a", "b", "c"]} if "255, got" in said else {}
    with pytest.raises(DubitoError, match=said):
        read(tmp_path, GREY, mask, of_mask=ending, **options)


def test_gaps_between_the_numbers_of_classes_are_spoken_of(tmp_path):
    scenes = shapes(5, size=(16, 20))
    (tmp_path / "i").mkdir()
    (tmp_path / "m").mkdir()
    for i in range(5):
        Image.fromarray(scenes.inputs[i].permute(1, 2, 0).numpy()).save(tmp_path / f"i/{i}.png")
        Image.fromarray(np.array([0, 7, 40, 41], np.uint8)[scenes.labels[i].numpy()]).save(
            tmp_path / f"m/{i}.png"
        )
    said = []
    job = FitJob(
        tmp_path / "i", tmp_path / "run", masks=tmp_path / "m", method="ce", epochs=1, device="cpu", folds=1
    )
    command.fit(job, said.append)
    assert said[0].startswith("38 of 42 classes occur nowhere")
    assert said[0].endswith("--values 0,7,40,41")
