"""Folders of a user that are not as they should be: void masks, turned photographs, places that are taken."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from dubito import DubitoError
from dubito._product.tasks import FitJob, PredictJob
from dubito.data import image_folder, load, mask_folders, pixel_images
from dubito.segmentation import command
from dubito.segmentation.shapes import shapes

SCENES = shapes(6, size=(16, 20))


def silent(line):
    pass


@pytest.fixture
def folders(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "masks").mkdir()
    for i in range(6):
        Image.fromarray(SCENES.inputs[i].permute(1, 2, 0).numpy()).save(tmp_path / f"photos/s{i}.png")
        draw(tmp_path / f"masks/s{i}.png", SCENES.labels[i])
    return tmp_path


def draw(path, mask):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(mask).astype(np.uint8)).save(path)


def job(root, **options):
    return FitJob(
        root / "photos",
        root / "run",
        **{"masks": root / "masks", "method": "ce", "epochs": 1, "device": "cpu", **options},
    )


def test_void_everywhere_is_refused(folders):
    for i in range(6):
        draw(folders / f"masks/s{i}.png", np.full((16, 20), 255))
    with pytest.raises(DubitoError, match="every pixel of the masks is void"):
        command.fit(job(folders), silent)
    (folders / "masks/ann").mkdir()
    for i in range(6):
        (folders / f"masks/s{i}.png").rename(folders / f"masks/ann/s{i}.png")
    with pytest.raises(DubitoError, match="every pixel of the masks is void"):
        command.fit(job(folders, options={"annotators": True}), silent)
    assert not (folders / "run").exists()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_images_without_a_label_are_neither_learned_from_nor_held_out(folders, seed):
    """Two of six: whatever the seed, the image that is held out has labels."""
    for i in range(2):
        draw(folders / f"masks/s{i}.png", np.full((16, 20), 255))
    command.fit(job(folders, seed=seed), silent)
    rows = [line.split(",") for line in (folders / "run/images.csv").read_text().splitlines()[1:]]
    assert [row[1] for row in rows[:2]] == ["no label"] * 2
    assert [row[2] for row in rows[:2]] == [""] * 2
    assert sorted(row[1] for row in rows[2:]) == ["held out"] + ["learned from"] * 3
    assert (folders / "run/masks/s0.png").is_file()


def test_too_few_images_with_a_label(folders):
    for i in range(3):
        draw(folders / f"masks/s{i}.png", np.full((16, 20), 255))
    with pytest.raises(DubitoError, match=r"labelled pixel at .*: expected at least 4, got 3"):
        command.fit(job(folders), silent)


def test_a_class_that_wins_no_vote_is_a_class(folders):
    masks = folders / "several"
    for i in range(6):
        for person in ("ann", "bob"):
            draw(masks / person / f"s{i}.png", SCENES.labels[i])
    odd = SCENES.labels[0].clone()
    odd[0, 0] = 6
    draw(masks / "bob/s0.png", odd)
    data = mask_folders(folders / "photos", masks, annotators=True)
    assert data.num_classes == 7
    assert int(data.labels.max()) < 6
    assert int(data.crowd.label.max()) == 6


@pytest.mark.parametrize("turn", [3, 6])
def test_a_photograph_that_its_tag_turns_is_refused(folders, turn):
    """By half a turn the size is that of the mask: nothing else would tell."""
    exif = Image.Exif()
    exif[0x0112] = turn
    with Image.open(folders / "photos/s0.png") as image:
        image.save(folders / "photos/s0.jpg", exif=exif)
    (folders / "photos/s0.png").unlink()
    for read in (
        lambda: mask_folders(folders / "photos", folders / "masks"),
        lambda: pixel_images(folders / "photos", 4),
    ):
        with pytest.raises(DubitoError, match=r"turned by a tag of its camera.*s0\.jpg"):
            read()
    exif[0x0112] = 1
    with Image.open(folders / "photos/s0.jpg") as image:
        upright = image.copy()
    upright.save(folders / "photos/s0.jpg", exif=exif)
    assert len(mask_folders(folders / "photos", folders / "masks")) == 6


def test_a_method_that_cannot_be_leaves_no_run_behind(folders):
    for method in ("hat", "forward", "trace"):
        with pytest.raises(DubitoError):
            command.fit(job(folders, method=method), silent)
        assert not (folders / "run").exists()


def test_predictions_replace_neither_a_run_nor_images(folders):
    command.fit(job(folders), silent)
    before = (folders / "run/images.csv").read_bytes()
    for place, why in (
        ("run", "a run's"),
        ("photos", "among the images"),
        ("photos/found", "among the images"),
    ):
        with pytest.raises(DubitoError, match=why):
            command.predict(PredictJob(folders / "run", folders / "photos", folders / place), silent)
    assert (folders / "run/images.csv").read_bytes() == before
    assert len(list((folders / "photos").iterdir())) == 6


def test_cityscapes_with_masks_of_train_ids_alone(tmp_path):
    base, stem = tmp_path / "cityscapes", "aachen_000000_000019"
    (base / "leftImg8bit/train/aachen").mkdir(parents=True)
    Image.new("RGB", (10, 2)).save(base / f"leftImg8bit/train/aachen/{stem}_leftImg8bit.png")
    ids = torch.tensor([*range(19), 255]).view(2, 10)
    draw(base / f"gtFine/train/aachen/{stem}_gtFine_labelTrainIds.png", ids)
    assert load("cityscapes", root=tmp_path).labels.flatten().tolist() == [*range(19), -100]
    draw(base / f"gtFine/train/aachen/{stem}_gtFine_labelTrainIds.png", ids.clamp(max=33))
    with pytest.raises(DubitoError, match="no class"):
        load("cityscapes", root=tmp_path)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gold": "gold.csv"}, "--gold is not for masks"),
        ({"label": "kind"}, "--label is not for masks"),
        ({"clean": "truth"}, "--clean is not for masks"),
        ({"epochs": 0}, "--epochs is too small: expected at least 1, got 0"),
        ({"folds": -3}, "no such number of folds"),
    ],
)
def test_options_that_mean_nothing_for_masks_are_refused(folders, given, said):
    """They were passed over in silence, and no epochs were as many as by default."""
    with pytest.raises(DubitoError, match=said):
        command.fit(job(folders, **given), silent)
    assert not (folders / "run").exists()


def test_folders_of_annotators_are_told_of(folders):
    for person in ("ann", "bob"):
        shutil.copytree(folders / "masks", folders / "people" / person)
    with pytest.raises(DubitoError, match=r"ann, bob look like annotators.*--several"):
        mask_folders(folders / "photos", folders / "people")


def test_a_file_is_no_folder_and_a_photograph_that_is_not_read_is_not_passed_over(folders):
    photo = next((folders / "photos").iterdir())
    with pytest.raises(DubitoError, match="not a folder, but a file"):
        pixel_images(photo, 2)
    shutil.copy(photo, folders / "photos" / "portrait.HEIC")
    for read in (
        lambda: pixel_images(folders / "photos", 2),
        lambda: mask_folders(folders / "photos", folders / "masks"),
        lambda: image_folder(folders),
    ):
        with pytest.raises(DubitoError, match=r"of a kind that is not read at .*portrait.HEIC.*JPEG or PNG"):
            read()


def test_large_images_are_told_of_before_they_are_trained_on(folders, monkeypatch):
    monkeypatch.setattr(command, "LARGE", 100)
    monkeypatch.setattr(command, "_complete", lambda *_: None)
    said = []
    command.fit(job(folders), said.append)
    assert any("--size N" in line for line in said)
