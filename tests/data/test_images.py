"""Image files: decoding, and what happens to hostile ones."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito._product.inputs import read_inputs
from dubito._product.sources import Source
from dubito.data import ImageFiles, image_folder
from dubito.data.images import Texts, decode


def test_scaled_and_cut_to_a_square(tmp_path):
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 255  # a white square in the middle of a wide black image
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    assert (decode(tmp_path / "wide.png", 10) == 255).all()
    assert decode(tmp_path / "wide.png").shape == (3, 10, 30)
    assert decode(tmp_path / "wide.png", 5, "L").shape == (1, 5, 5)
    assert np.array_equal(decode(tmp_path / "wide.png"), pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_any_mode_becomes_colour(tmp_path, mode):
    suffix = "tif" if mode in ("CMYK", "I;16") else "png"
    Image.new(mode, (6, 6)).save(tmp_path / f"x.{suffix}")
    assert decode(tmp_path / f"x.{suffix}", 4).shape == (3, 4, 4)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_of_sixteen_bits_the_upper_eight_count(tmp_path, suffix):
    """Pillow cuts off at 255: all but black was white."""
    values = np.arange(0, 65536, 4096, np.uint16).reshape(4, 4)
    Image.fromarray(values).save(tmp_path / f"x.{suffix}")
    assert np.array_equal(decode(tmp_path / f"x.{suffix}", mode="L")[0], values // 256)
    assert np.array_equal(decode(tmp_path / f"x.{suffix}"), np.stack([values // 256] * 3))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pictures_without_a_known_white_are_refused(tmp_path, kind):
    """Values alone do not tell: the same 255 is white in one picture and all but black in another."""
    Image.fromarray(np.array([[0, 255]], kind)).save(tmp_path / "x.tif")
    with pytest.raises(DubitoError, match=r"no known white at .*x.tif: expected 8 or 16 bits per channel"):
        decode(tmp_path / "x.tif")


def test_a_batch_in_order(tmp_path):
    for i in range(12):
        Image.new("L", (4, 4), i).save(tmp_path / f"{i}.png")
    files = ImageFiles(tmp_path, [f"{i}.png" for i in range(12)], mode="L")
    rows = torch.tensor([11, 0, 5, 5, 3, 2, 9, 1, 4])
    assert files[rows][:, 0, 0, 0].tolist() == rows.tolist()
    assert files[rows[:0]].shape == (0, 1, 0, 0)
    Image.new("L", (5, 4)).save(tmp_path / "0.png")
    with pytest.raises(DubitoError, match="images of different sizes"):
        files[rows]
    with pytest.raises(DubitoError, match="unknown image mode"):
        ImageFiles(tmp_path, [], mode="XYZ")


def png(width, height, data=b""):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.rel
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a readable image"),
        (b"GIF89a", "not a readable image"),
        (b"<svg onload='alert(1)'/>", "not a readable image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a readable image"),
        (png(100_000, 100_000), "image too large"),
        (png(9_000, 9_000), "image too large"),
        (png(100, 100, b"no zlib"), "not a readable image"),
        (png(100, 100, zlib.compress(b"\0" * 50)), "not a readable image"),
        (b"P6 999999 999999 255\n", "image too large"),
    ],
)
def test_hostile_images(tmp_path, raw, message):
    """Scorecard 28: bombs, cut files, and formats that run programs are refused in a sentence."""
    (tmp_path / "x.png").write_bytes(raw)
    with pytest.raises(DubitoError, match=message):
        decode(tmp_path / "x.png", 8)


@pytest.mark.rel
def test_links_out_of_the_folder_are_refused(tmp_path):
    """Scorecard 28: neither `..` nor a link leads out of the image folder."""
    (tmp_path / "in").mkdir()
    Image.new("L", (4, 4)).save(tmp_path / "secret.png")
    (tmp_path / "in" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "in" / "folder").symlink_to(tmp_path)
    for path in ("link.png", "folder/secret.png", "../secret.png", str(tmp_path / "secret.png")):
        with pytest.raises(DubitoError, match="leads out of the image folder"):
            ImageFiles(tmp_path / "in", [path])[torch.tensor([0])]
    with pytest.raises(DubitoError, match="no such image"):
        ImageFiles(tmp_path / "in", ["gone.png"])[torch.tensor([0])]


def test_a_broken_image_is_named_as_it_was_given(tmp_path, monkeypatch):
    """Not by where a resolved path leads: the user looks for what they typed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x.png").write_bytes(b"no picture")
    for name in ("x.png", "gone.png"):
        with pytest.raises(DubitoError, match=f"photos/{name}") as found:
            ImageFiles(Path("photos"), [name])[torch.tensor([0])]
        assert str(tmp_path) not in str(found.value)


def test_texts_hold_many_names_in_little_memory():
    names = [f"folder/naïve {i}.png" for i in range(1000)] + ["", "\udcff odd"]
    texts = Texts(names)
    assert list(texts) == names
    assert texts[-1] == "\udcff odd"
    assert texts[2:4] == names[2:4]
    with pytest.raises(IndexError):
        texts[1002]


def test_a_class_without_images_is_warned_of(tmp_path, caplog):
    for name in ("cat", "dog", "eel"):
        (tmp_path / name).mkdir()
    for name in ("cat", "eel"):
        Image.new("L", (4, 4)).save(tmp_path / name / "1.png")
    data = image_folder(tmp_path)
    assert data.classes == ("cat", "dog", "eel"), "numbers of classes do not hang on what one part lacks"
    assert [r.getMessage() for r in caplog.records] == [
        f"{tmp_path}: the folder of class 'dog' has no images"
    ]


def test_new_images_in_folders_are_those_that_are_read_from_folders(tmp_path):
    """Endings in capitals and of JPEG by another name; photographs that are not read are not passed over."""
    (tmp_path / "a" / "b c").mkdir(parents=True)
    for name in ("a/b c/x.PNG", "a/y.jpg", "z.jfif", ".hidden.png"):
        Image.new("RGB", (6, 5)).save(tmp_path / name, format="PNG" if "n" in name.lower() else "JPEG")
    source = Source("folder", "train", size=4)
    found = read_inputs(source, tmp_path, None)
    assert found.ids == ["a/b c/x.PNG", "a/y.jpg", "z.jfif"]
    assert found.gather(torch.arange(3)).shape == (3, 3, 4, 4)
    with pytest.raises(DubitoError, match=r"an image, not a table at .*; give the folder"):
        read_inputs(source, tmp_path / "a" / "y.jpg", None)
    (tmp_path / "a" / "IMG_1.HEIC").write_bytes(b"")
    with pytest.raises(DubitoError, match=r"of a kind that is not read at .*IMG_1.HEIC"):
        read_inputs(source, tmp_path, None)
