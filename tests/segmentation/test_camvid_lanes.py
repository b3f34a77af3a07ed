"""The runs of the CamVid benchmark as steps that can be captured are those of the plain loop."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the benchmarks are not here")
NAMES = ("segmentation_networks", "segmentation_links", "segmentation", "segmentation_steps")


@pytest.fixture(scope="module")
def benchmark():
    """The plain benchmark and its lanes, with windows of 16 x 24."""
    before = list(sys.path)
    sys.path.insert(0, str(BENCHMARKS))
    modules = [importlib.import_module(name) for name in NAMES]
    with pytest.MonkeyPatch.context() as patch:
        for module in modules[2:]:
            patch.setattr(module, "CROP", (16, 24))
        yield modules[2:]
    sys.path[:] = before
    for name in NAMES:
        sys.modules.pop(name)


@pytest.fixture
def folder(tmp_path):
    source = np.random.default_rng(0)
    for split in ("train", "val", "test"):
        np.save(tmp_path / f"{split}_images.npy", source.integers(0, 255, (4, 3, 20, 28), dtype=np.uint8))
        np.save(tmp_path / f"{split}_masks.npy", source.integers(0, 11, (4, 20, 28)).astype(np.int8))
    noisy = {split: source.integers(0, 11, (4, 20, 28)).astype(np.int8) for split in ("train", "val")}
    np.savez(tmp_path / "border.npz", **noisy)
    return tmp_path


FORMS = [
    (None, "log_probs"),
    (1.0, "log_probs"),
    (1.0, "latent"),
    pytest.param((1.0, "features"), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_lane_makes_the_steps_of_the_plain_loop(benchmark, folder, form, monkeypatch):
    """After a step of another run, which must leave nothing behind."""
    plain, steps = benchmark
    job = {"network": "compact", "labels": "border", "tau": form[0], "seed": 1, "upsample": form[1]}
    kept = []
    monkeypatch.setattr(plain, "fit", lambda *a, _fit=plain.fit, **k: kept.append(_fit(*a, **k)) or kept[0])
    expected = plain.run(job, folder, 3, 4, "cpu")
    lane = steps.Lane({**job, "seed": 0, "labels": "clean"}, steps.Sets(folder, 4, "cpu"), 3, 4)
    next(lane.run())
    lane.set(job)
    assert sum(1 for _ in lane.run()) == 3
    for (name, ours), theirs in zip(lane.model.state_dict().items(), kept[0].model.state_dict().values()):
        assert torch.allclose(ours, theirs, atol=1e-4), name
    found = lane.finish()
    assert found["missed"] == 0
    for part in ("val", "val_clean", "test"):
        for score, value in expected[part].items():
            assert found[part][score] == pytest.approx(value, abs=2e-2), (part, score)


@pytest.mark.usefixtures("benchmark")
def test_rows_that_need_more_nodes_get_them():
    """Two rows with scales of 0.02 and 1.5 at a low temperature: 128 nodes are too few, the rule takes more."""
    from dubito.links import expected_log_softmax

    links = sys.modules["segmentation_links"]
    source = torch.Generator().manual_seed(0)
    mean = torch.randn(64, 5, generator=source)
    scale, tau = torch.full((64, 5), 1.5), torch.full((64, 1), 0.05)
    mean[:2, 0], scale[:2, 0] = 1.0, 0.02
    found, missed = links.fixed_link(mean, scale, tau, 128)
    exact = expected_log_softmax(mean.double(), scale.double(), temperature=0.05)
    off = (found.exp() - exact.exp()).abs().amax(-1)
    assert float(off.max()) < 1e-3
    assert int(missed) == 0
    _, error = links.QuickClasses.apply(mean, scale, tau, 128)
    assert int((error > 1e-4).sum()) >= 2
