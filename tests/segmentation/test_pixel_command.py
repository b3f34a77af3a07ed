"""`dubito fit --masks` and `dubito predict` on folders: files, sizes, a report, refusals."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from dubito import DubitoError
from dubito._product.tasks import FitJob, PredictJob
from dubito.cli import app
from dubito.data import read_mask
from dubito.segmentation import class_maps, command, pictures
from dubito.segmentation.shapes import CLASSES, shapes


def silent(line):
    pass


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Six scenes and their masks; two more scenes of another size."""
    root = tmp_path_factory.mktemp("user")
    for name, data in (
        ("photos", shapes(6, size=(16, 20))),
        ("new", shapes(2, size=(18, 27), purpose="new")),
    ):
        (root / name).mkdir()
        for i in range(len(data)):
            Image.fromarray(data.inputs[i].permute(1, 2, 0).numpy()).save(root / name / f"s{i}.png")
    (root / "masks").mkdir()
    masks = shapes(6, size=(16, 20)).labels.numpy().astype(np.uint8)
    masks[:, 0] = 255
    for i in range(6):
        Image.fromarray(masks[i]).save(root / "masks" / f"s{i}.png")
    (root / "masks" / "classes.txt").write_text("\n".join(CLASSES))
    return root


@pytest.fixture(scope="module")
def run(folders):
    """A run by the command line, with one step per epoch."""
    out = folders / "run"
    options = ["--method", "het:temperature=0.5", "--epochs", "2", "--device", "cpu"]
    result = CliRunner().invoke(
        app, ["fit", str(folders / "photos"), "--masks", str(folders / "masks"), "--out", str(out), *options]
    )
    assert result.exit_code == 0, result.output
    assert "report.html" in result.output
    return out


def test_fit_leaves_masks_maps_scores_and_a_report(run):
    for kind in ("masks", "uncertainty", "variance"):
        files = sorted((run / kind).iterdir())
        assert [f.name for f in files] == [f"s{i}.png" for i in range(6)]
        assert {Image.open(f).size for f in files} == {(20, 16)}
    assert read_mask(run / "masks/s0.png").max() <= 3
    found = json.loads((run / "metrics.json").read_text())
    assert 0 <= found["mean_iou"] <= 1
    assert set(found["iou"]) <= set(CLASSES)
    table = (run / "images.csv").read_text().splitlines()
    assert table[0] == "id,part,iou,log_likelihood,uncertainty"
    assert sum("held out" in line for line in table) == 1
    page = (run / "report.html").read_text()
    assert 'id="pictures"' in page
    assert "data:image/jpeg;base64," in page
    assert (run / "examples.png").stat().st_size > 1000
    assert (run / "classes.png").stat().st_size > 1000
    assert (
        "τ = 0.5. Image, mask as drawn, prediction, standard deviation of the probability of ground" in page
    )


@pytest.mark.parametrize("method", ["forward", "backward", "backward:transition=3"])
def test_what_needs_a_matrix_is_refused_before_anything_is_written(folders, tmp_path, method):
    job = FitJob(
        folders / "photos", tmp_path / "run", masks=folders / "masks", method=method, epochs=1, device="cpu"
    )
    name = method.partition(":")[0]
    with pytest.raises(DubitoError, match=f"{name} needs a transition matrix.*{name}:alpha=0.1.*single-cm"):
        command.fit(job, silent)
    assert not (tmp_path / "run").exists()
    done = command.fit(replace(job, method=f"{name}:alpha=0.1"), silent)  # the remedy works
    assert done.is_file()


@pytest.mark.parametrize(("method", "order"), [("ce", "log_probs"), ("bi-tempered", "latent")])
def test_predictions_are_of_the_order_that_the_loss_trains(method, order):
    setting = command.Setting("encoder-decoder-small", (3, 16, 20), CLASSES, None, 1)
    assert command.make(setting, method)[0].upsample == order


def test_the_maps_of_each_class_at_every_temperature_that_was_tried(folders, tmp_path):
    """Race of three models: two have a variance, so each image that is shown has two rows of maps."""
    job = FitJob(folders / "photos", tmp_path / "run", masks=folders / "masks", epochs=2, device="cpu")
    command.fit(job, silent)
    page = (tmp_path / "run/report.html").read_text()
    method = json.loads((tmp_path / "run/metrics.json").read_text())["method"]
    for name in ("het:temperature=0.05", "het:temperature=1.0"):
        tau = f"{float(name.rpartition('=')[2]):g}" + ("" if name == method else ", short trial")
        assert (
            page.count(f"τ = {tau}. Image, mask as drawn, prediction, standard deviation of") == 2
        )  # alt, caption
    data = command.mask_folders(folders / "photos", folders / "masks")
    network, _ = command.make(
        command.Setting("encoder-decoder-small", (3, 16, 20), CLASSES, None, 1), "het:temperature=0.05"
    )
    example = {
        "name": "s0",
        "row": 0,
        "image": np.zeros((16, 20, 3), np.uint8),
        "given": data.labels[0].long(),
    }
    (found,) = class_maps.class_maps(class_maps.noisy({"a": network}, "a"), data, [example])
    x = data.batch(torch.tensor([0]))
    variance = pictures.variance_maps(network, x, samples=256)[0]
    assert found.title == "τ = 0.05"
    counts = torch.bincount(example["given"][example["given"] >= 0], minlength=4)
    assert next(iter(found.deviations)) == int(counts.argmax())
    for c, deviation in found.deviations.items():
        assert np.allclose(deviation**2, variance[..., c].numpy(), atol=1e-6)


def test_predict_writes_masks_at_the_size_of_the_images(run, folders):
    out = folders / "found"
    result = CliRunner().invoke(app, ["predict", str(run), str(folders / "new"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert {Image.open(f).size for f in (out / "masks").iterdir()} == {(27, 18)}
    assert len((out / "images.csv").read_text().splitlines()) == 3
    model, setting, method = command.load(run)
    assert method == "het:temperature=0.5"
    assert setting.classes == CLASSES
    image = torch.from_numpy(np.array(Image.open(folders / "new/s1.png"))).permute(2, 0, 1)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (image / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.no_grad():
        log_p = model(x.unsqueeze(0))[0]
    assert (read_mask(out / "masks/s1.png") == log_p.argmax(-1).numpy()).all()
    entropy = -(log_p.exp() * log_p).sum(-1) / np.log(4)
    grey = np.array(Image.open(out / "uncertainty/s1.png"))
    assert np.abs(grey - 255 * entropy.numpy()).max() <= 0.51


def test_a_finished_run_is_taken_up_and_another_configuration_refused(run, folders):
    job = FitJob(folders / "photos", run, masks=folders / "masks", method="het:temperature=0.5", epochs=2,
                 device="cpu", options={"void": "255"})  # fmt: skip
    before = (run / "metrics.json").read_bytes()
    command.fit(job, silent)
    assert (run / "metrics.json").read_bytes() == before
    other = FitJob(folders / "photos", run, masks=folders / "masks", method="ce", epochs=2, device="cpu")
    with pytest.raises(DubitoError, match="method"):
        command.fit(other, silent)


def test_scaled_images_come_back_at_their_own_size(folders):
    out = folders / "scaled"
    job = FitJob(
        folders / "photos", out, masks=folders / "masks", method="ce", epochs=1, size=12, device="cpu",
        options={"values": ("0", "1", "2", "3"), "void": "255"},
    )  # fmt: skip
    command.fit(job, silent)
    assert "ground is 0, disc is 1" in (out / "report.html").read_text()  # what was said of the numbers
    for kind in ("masks", "uncertainty", "doubt"):
        assert {Image.open(f).size for f in (out / kind).iterdir()} == {(20, 16)}
    found = command.predict(PredictJob(out, folders / "new", folders / "scaled-found.csv"), silent)
    assert found == folders / "scaled-found"
    assert {Image.open(f).size for f in (found / "masks").iterdir()} == {(27, 18)}
    assert not (found / "variance").exists()


def test_several_annotators(folders, tmp_path):
    for person, wrong in (("ann", 0), ("bob", 1)):
        (tmp_path / "masks" / person).mkdir(parents=True)
        for i in range(6):
            if (person, i) != ("bob", 3):
                mask = read_mask(folders / f"masks/s{i}.png").astype(np.uint8)
                Image.fromarray(np.where(mask == wrong * 2, 3, mask)).save(
                    tmp_path / "masks" / person / f"s{i}.png"
                )
    job = FitJob(
        folders / "photos", tmp_path / "run", masks=tmp_path / "masks", epochs=1, device="cpu",
        options={"annotators": True, "classes": CLASSES},
    )  # fmt: skip
    said = []
    command.fit(job, said.append)
    assert any(line.startswith("trace") for line in said)
    page = (tmp_path / "run/report.html").read_text()
    assert "ann" in page
    assert "bob" in page
    model, setting, _ = command.load(tmp_path / "run")
    assert setting.annotators == 2
    assert model.channel.log_matrices().shape == (2, 4, 4)


def test_the_matrices_of_annotators_are_theirs_after_a_short_run(folders, tmp_path):
    """From one start for all, the steps of a run are too few: the matrices would be those it began with."""
    truth = shapes(6, size=(16, 20)).labels
    drawn = {"ann": truth, "bob": torch.where(truth == 2, 0, truth), "eve": truth}
    for person, masks in drawn.items():
        (tmp_path / "masks" / person).mkdir(parents=True)
        for i in range(6):
            if (person, i) != ("eve", 3):
                file = tmp_path / "masks" / person / f"s{i}.png"
                Image.fromarray(masks[i].numpy().astype(np.uint8)).save(file)
    job = FitJob(
        folders / "photos", tmp_path / "run", masks=tmp_path / "masks", epochs=2, device="cpu",
        options={"annotators": True, "classes": CLASSES},
    )  # fmt: skip
    command.fit(job, silent)
    model, _, _ = command.load(tmp_path / "run")
    diagonals = model.channel.diagonals().detach()
    assert (diagonals[[0, 2]] > 0.97).all()
    assert diagonals[1, 2] < 0.05
    assert (diagonals[1, [0, 1, 3]] > 0.97).all()
    for i in range(6):
        assert (read_mask(tmp_path / f"run/consensus/s{i}.png") == truth[i].numpy()).all()
    found = json.loads((tmp_path / "run/metrics.json").read_text())
    page = (tmp_path / "run/report.html").read_text()
    assert found["pixels"] == 320
    assert "merged" in page
    skills = page[page.index("Skills: ") : page.index("</table>", page.index("Skills: "))]
    assert skills.index(">bob<") < min(skills.index(">ann<"), skills.index(">eve<"))  # the worst first
    assert "interval" not in skills  # nothing was said of one


def test_refusals(folders, tmp_path):
    masks = tmp_path / "one"
    masks.mkdir()
    for i in range(6):
        Image.fromarray(np.where(np.eye(16, 20) > 0, 255, 0).astype(np.uint8)).save(masks / f"s{i}.png")
    with pytest.raises(DubitoError, match="--values 0,255"):
        command.fit(FitJob(folders / "photos", tmp_path / "run", masks=masks), silent)
    with pytest.raises(DubitoError, match=r"an order of its own|does not learn from pixels"):
        command.fit(
            FitJob(
                folders / "photos", tmp_path / "run2", masks=folders / "masks", method="coteaching:rate=0.2"
            ),
            silent,
        )
    few = tmp_path / "few"
    few.mkdir()
    for i in range(2):
        Image.fromarray((np.eye(18, 27) > 0).astype(np.uint8)).save(few / f"s{i}.png")
    with pytest.raises(DubitoError, match="at least 4"):
        command.fit(FitJob(folders / "new", tmp_path / "run3", masks=few), silent)
