"""Segmentation sets and users' folders: real layouts, matched by name, hostile files refused in a sentence."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito.data import load, mask_folders, pixel_images, read_mask
from dubito.data._masks import Numbering, canvas, resized


def pattern(seed, h, w, top):
    return np.random.default_rng(seed).integers(0, top, (h, w)).astype(np.uint8)


def photo(path, seed, h, w):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (h, w, 3)).astype(np.uint8)).save(path)


def palette(path, numbers):
    """A palette PNG whose colours have nothing to do with its numbers, as VOC's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(numbers).convert("L").copy()
    image = Image.frombytes("P", image.size, numbers.tobytes())
    image.putpalette([(7 * i + 13) % 256 for i in range(768)])
    image.save(path)


def grey(path, numbers):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers).save(path)


@pytest.fixture
def voc(tmp_path):
    base = tmp_path / "VOCdevkit" / "VOC2012"
    masks = {}
    for i, (stem, (h, w)) in enumerate(
        {"2007_000032": (6, 9), "2007_000039": (8, 5), "2007_9": (4, 4)}.items()
    ):
        photo(base / "JPEGImages" / f"{stem}.jpg", i, h, w)
        masks[stem] = pattern(i, h, w, 21)
        masks[stem][0, 0] = 255
        palette(base / "SegmentationClass" / f"{stem}.png", masks[stem])
        palette(base / "SegmentationClassAug" / f"{stem}.png", np.minimum(masks[stem], 1))
    lists = base / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("2007_000032\n2007_000039\n")
    (lists / "val.txt").write_text("2007_9\n")
    (lists / "test.txt").write_text("2007_9\n")
    (lists / "trainaug.txt").write_text(
        "/JPEGImages/2007_9.jpg /SegmentationClassAug/2007_9.png\n2007_000032\n"
    )
    return tmp_path, masks


def test_voc_in_its_layout(voc):
    root, masks = voc
    data = load("voc", "train", root=root)
    assert data.classes[15] == "person"
    assert data.num_classes == 21
    assert data.ids == ["2007_000032", "2007_000039"]
    assert data.labels.shape == (2, 8, 9)
    assert data.labels.dtype == torch.int8
    for row, stem in enumerate(data.ids):
        h, w = masks[stem].shape
        expected = np.where(masks[stem] == 255, -100, masks[stem].astype(np.int64))
        assert (data.labels[row, :h, :w].numpy() == expected).all()
        assert (data.labels[row, h:] == -100).all()
        assert (data.labels[row, :, w:] == -100).all()
        assert data.extra["extent"][row].tolist() == [h, w]
    x = data.gather(torch.tensor([1]))
    assert x.shape == (1, 3, 8, 9)
    assert x.dtype == torch.uint8
    on_disk = np.array(Image.open(root / "VOCdevkit/VOC2012/JPEGImages/2007_000039.jpg"))
    assert (x[0, :, :, :5].permute(1, 2, 0).numpy() == on_disk).all()
    assert x[0, :, 0, 7].tolist() == [124, 116, 104]


def test_voc_augmented_list_and_hidden_test_masks(voc):
    root, _ = voc
    more = load("voc", "train_aug", root=root)
    assert more.ids == ["2007_9", "2007_000032"]
    assert set(more.labels.unique().tolist()) <= {-100, 0, 1}
    assert (load("voc", "test", root=root).labels == -100).all()


def test_voc_refuses_other_numbers_and_paths_that_lead_out(voc):
    root, _masks = voc
    base = root / "VOCdevkit/VOC2012"
    palette(base / "SegmentationClass/2007_9.png", np.full((4, 4), 30, np.uint8))
    with pytest.raises(DubitoError, match=r"no class at .*2007_9.png, row 0, column 0.*got 30"):
        load("voc", "val", root=root)
    (base / "ImageSets/Segmentation/val.txt").write_text("../../../etc/passwd\n")
    with pytest.raises(DubitoError, match="leads out"):
        load("voc", "val", root=root)


def test_cityscapes_in_its_layout(tmp_path):
    stem = "aachen_000000_000019"
    photo(tmp_path / f"cityscapes/leftImg8bit/train/aachen/{stem}_leftImg8bit.png", 0, 4, 8)
    ids = np.array([[7, 8, 11, 12, 13, 17, 19, 20], [21, 22, 23, 24, 25, 26, 27, 28], [31, 32, 33, 0, 1, 2, 3, 4],
                    [5, 6, 9, 10, 14, 15, 16, 30]], np.uint8)  # fmt: skip
    place = tmp_path / "cityscapes/gtFine/train/aachen"
    grey(place / f"{stem}_gtFine_labelIds.png", ids)
    data = load("cityscapes", root=tmp_path)
    assert data.ids == [stem]
    assert data.classes[0] == "road"
    assert data.classes[18] == "bicycle"
    assert data.labels.flatten().tolist() == [*range(19), *[-100] * 13]
    (place / f"{stem}_gtFine_labelIds.png").unlink()
    with pytest.raises(DubitoError, match="image without a mask"):
        load("cityscapes", root=tmp_path)


def test_camvid_in_segnets_folders(tmp_path):
    base = tmp_path / "CamVid"
    photo(base / "val/0016E5_07959.png", 0, 4, 6)
    grey(base / "valannot/0016E5_07959.png", np.arange(24, dtype=np.uint8).reshape(4, 6) % 12)
    (base / "val.txt").write_text(
        "/SegNet/CamVid/val/0016E5_07959.png /SegNet/CamVid/valannot/0016E5_07959.png\n"
    )
    data = load("camvid", "val", root=tmp_path)
    assert data.classes[0] == "Sky"
    assert data.labels[0, 1, 5] == -100
    assert data.labels[0, 1, 4] == 10


@pytest.fixture
def pair(tmp_path):
    """Two images of different sizes, one in a folder below, with grey and palette masks."""
    images, masks = tmp_path / "photos", tmp_path / "masks"
    photo(images / "a.jpg", 0, 5, 7)
    photo(images / "more/b.png", 1, 6, 4)
    grey(masks / "a.png", pattern(0, 5, 7, 3))
    palette(masks / "more/b.png", np.where(pattern(1, 6, 4, 3) == 2, 255, 1).astype(np.uint8))
    return images, masks


def test_folders_of_a_user(pair):
    images, masks = pair
    data = mask_folders(images, masks)
    assert data.ids == ["a", "more/b"]
    assert data.num_classes == 3
    assert data.labels.shape == (2, 6, 7)
    assert (data.labels[0, :5].numpy() == pattern(0, 5, 7, 3)).all()
    assert set(data.labels[1, :, :4].unique().tolist()) == {-100, 1}
    (masks / "classes.txt").write_text("ground\nwall\nroof\ntree\n")
    assert mask_folders(images, masks).classes == ("ground", "wall", "roof", "tree")
    assert mask_folders(images, masks, classes="xyz").classes == ("x", "y", "z")
    with pytest.raises(DubitoError, match="holds a number that is no class"):
        mask_folders(images, masks, classes="xy")


def test_scaled_to_a_canvas(pair):
    images, masks = pair
    data = mask_folders(images, masks, size=(3, 4), fit="scale")
    assert data.labels.shape == (2, 3, 4)
    assert data.extra["extent"].tolist() == [[3, 4], [3, 2]]
    assert data.gather(torch.arange(2)).shape == (2, 3, 3, 4)
    with pytest.raises(DubitoError, match="larger than the canvas"):
        mask_folders(images, masks, size=(3, 4))


def test_nearest_pixel_is_the_one_below_the_centre():
    a = np.arange(12).reshape(3, 4)
    assert (resized(a, (6, 8), smooth=False) == a.repeat(2, 0).repeat(2, 1)).all()
    assert resized(a, (1, 2), smooth=False).tolist() == [[5, 7]]


def test_values_and_colours(tmp_path):
    images, masks = tmp_path / "i", tmp_path / "m"
    photo(images / "a.png", 0, 2, 2)
    grey(masks / "a.png", np.array([[0, 255], [255, 0]], np.uint8))
    assert mask_folders(images, masks, values=[0, 255]).labels[0].tolist() == [[0, 1], [1, 0]]
    colours = np.array([[[128, 64, 128], [0, 0, 0]], [[1, 2, 3], [0, 0, 0]]], np.uint8)
    Image.fromarray(colours).save(masks / "a.png")
    with pytest.raises(DubitoError, match=r"holds colours.*got #000000, #010203, #804080; give the colour"):
        mask_folders(images, masks)
    found = mask_folders(images, masks, values=["#010203", "#804080"], void="#000000").labels[0]
    assert found.tolist() == [[1, -100], [0, -100]]
    with pytest.raises(DubitoError, match="each class once"):
        mask_folders(images, masks, values=["#010203", "#010203"])
    with pytest.raises(DubitoError, match="not a pixel value"):
        mask_folders(images, masks, values=["red"])


def test_several_annotators_with_missing_masks(tmp_path):
    images, masks = tmp_path / "i", tmp_path / "m"
    for stem in "ab":
        photo(images / f"{stem}.png", 0, 2, 3)
    grey(masks / "ann/a_mask.png", np.zeros((2, 3), np.uint8))
    grey(masks / "bob/a_mask.png", np.ones((2, 3), np.uint8))
    grey(masks / "bob/b_mask.png", np.ones((2, 3), np.uint8))
    data = mask_folders(images, masks, suffix="_mask", annotators=True)
    assert data.annotators == ("ann", "bob")
    assert data.labels[:, 0, 0].tolist() == [0, 1]  # a tie goes to the lower class
    assert data.crowd.item.tolist() == [0, 0, 1]
    assert data.crowd.annotator.tolist() == [0, 1, 1]
    assert data.crowd.label[:, 0, 0].tolist() == [0, 1, 1]


def test_bad_pairs_are_named(pair):
    images, masks = pair
    photo(images / "c.png", 0, 5, 5)
    with pytest.raises(DubitoError, match=r"images without a mask at .*got c"):
        mask_folders(images, masks)
    grey(masks / "c.png", np.zeros((5, 6), np.uint8))
    with pytest.raises(DubitoError, match=r"differ in size at .*c.png: expected 5 x 5 pixels, got 5 x 6"):
        mask_folders(images, masks)
    grey(masks / "c.png", np.zeros((5, 5), np.uint8))
    grey(masks / "d.png", np.zeros((5, 5), np.uint8))
    with pytest.raises(DubitoError, match=r"masks without an image at .*got d"):
        mask_folders(images, masks)
    (masks / "d.png").unlink()
    photo(images / "c.jpg", 0, 5, 5)
    with pytest.raises(DubitoError, match="two images of one name"):
        mask_folders(images, masks)


def test_images_without_masks(pair):
    images, _ = pair
    data = pixel_images(images, 4, size=(12, 14), fit="scale")
    assert [data.inputs.file_size(row) for row in range(2)] == [(5, 7), (6, 4)]
    assert (data.labels == -100).all()
    assert data.extra["extent"].tolist() == [[10, 14], [12, 8]]


def png_header(width, height, data=b""):
    """A PNG whose header may claim anything."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.rel
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a readable mask"),
        (b"GIF89a", "not a readable mask"),
        (png_header(60_000, 60_000), "too large"),
        (png_header(9_000, 9_000, zlib.compress(bytes(1 << 20))), "too large"),
        (png_header(50, 50, zlib.compress(b"\0" * 100)), "not a readable mask"),
        (png_header(50, 50, b"no stream"), "not a readable mask"),
    ],
)
def test_hostile_masks(tmp_path, raw, message):
    """Scorecard 28: masks that are empty, cut, or claim to be huge."""
    (tmp_path / "m.png").write_bytes(raw)
    with pytest.raises(DubitoError, match=message):
        read_mask(tmp_path / "m.png")


@pytest.mark.rel
def test_lossy_masks_and_links_that_lead_out(tmp_path):
    """Scorecard 28: JPEG masks are refused, links out of the folder are not followed."""
    raw = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(raw, "JPEG")
    (tmp_path / "m.png").write_bytes(raw.getvalue())
    with pytest.raises(DubitoError, match=r"changes the numbers of a mask.*JPEG"):
        read_mask(tmp_path / "m.png")
    images = tmp_path / "i"
    images.mkdir()
    photo(tmp_path / "secret.png", 0, 4, 4)
    (images / "a.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(DubitoError, match="no images"):
        pixel_images(images, 2)


def test_numbers_of_sixteen_bits_and_of_two_levels(tmp_path):
    wide = np.array([[300, 2], [0, 65535]], np.uint16)
    Image.fromarray(wide).save(tmp_path / "w.png")
    assert read_mask(tmp_path / "w.png").tolist() == wide.tolist()
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "b.png")
    assert read_mask(tmp_path / "b.png").tolist() == [[1, 0]]
    numbering = Numbering({300: 0, 2: 1, 70_000: 2}, [0, 65535])
    assert numbering(wide, tmp_path).tolist() == [[0, 1], [-100, -100]]
    assert numbering(np.array([[70_000, 2]], np.int32), tmp_path).tolist() == [[2, 1]]


def test_canvas_limits():
    with pytest.raises(DubitoError, match="no such canvas"):
        canvas([(3, 3)], (1 << 20, 1 << 20), "pad", ["a"])
    with pytest.raises(DubitoError, match="unknown way"):
        canvas([(3, 3)], None, "stretch", ["a"])
