"""Checkpoints: round trip, layout, which are kept, which is the latest, what is refused."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dubito import checkpoint
from dubito.errors import DubitoError

STATE = {"epoch": 3, "seed": 7, "config": {"lr": 0.1}}


def tensors(seed: int = 0) -> dict[str, dict[str, Tensor]]:
    g = torch.Generator().manual_seed(seed)
    return {
        "model": {"w": torch.randn(5, 3, generator=g), "b": torch.randn(5, generator=g)},
        "optimizer": {"state.0.step": torch.tensor(9.0), "state.0.m": torch.randn(5, 3, generator=g)},
    }


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    flat = [x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b)]
    return torch.equal(*flat)


def test_round_trip_is_bit_for_bit(tmp_path: Path) -> None:
    saved = tensors()
    path = checkpoint.save(tmp_path, 12, saved, STATE)
    found = checkpoint.load(path)
    assert (found.step, found.path, found.skipped) == (12, path, ())
    assert {k: found.state[k] for k in STATE} == STATE
    assert found.state["versions"]["torch"] == torch.__version__
    assert {g: set(v) for g, v in found.tensors.items()} == {g: set(v) for g, v in saved.items()}
    for group, named in saved.items():
        for name, value in named.items():
            assert same_bits(found.tensors[group][name], value)


def test_layout_and_hashes(tmp_path: Path) -> None:
    import hashlib

    path = checkpoint.save(tmp_path / "checkpoints", 1234, tensors(), STATE)
    assert path == tmp_path / "checkpoints" / "step-00001234"
    assert sorted(p.name for p in path.iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    state = json.loads((path / "state.json").read_text())
    assert (state["format"], state["step"], state["epoch"], state["seed"]) == (1, 1234, 3, 7)
    canonical = json.dumps(STATE["config"], sort_keys=True, separators=(",", ":"))
    assert state["config_hash"] == hashlib.sha256(canonical.encode()).hexdigest()
    for name in ("model.safetensors", "optimizer.safetensors"):
        data = (path / name).read_bytes()
        assert state["files"][name] == {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    a = checkpoint.save(tmp_path / "a", 5, tensors(), STATE)
    b = checkpoint.save(tmp_path / "b", 5, tensors(), dict(reversed(STATE.items())))
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        assert (a / name).read_bytes() == (b / name).read_bytes()


def test_odd_tensors_keep_their_values(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    odd = {
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "half": torch.tensor([1.5, float("inf"), float("nan")], dtype=torch.bfloat16),
        "fp16": torch.tensor(0.1, dtype=torch.float16),
        "double": torch.tensor([1 / 3], dtype=torch.float64),
        "int": torch.tensor([-(2**62)]),
        "bool": torch.tensor([True, False]),
        "whole": base,
        "again": base,
        "transposed": base.T,
        "slice": base[1:, ::2],
        "expanded": torch.tensor(2.0).expand(3, 2),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "negative zero": torch.tensor([-0.0]),
    }
    found = checkpoint.load(checkpoint.save(tmp_path, 0, {"model": odd}, {})).tensors["model"]
    assert found.keys() == odd.keys()
    assert all(same_bits(found[name], value) for name, value in odd.items())
    found["whole"].add_(1)
    assert torch.equal(found["again"], base), "tensors that shared memory come back apart"


def test_tied_parameters_stay_tied(tmp_path: Path) -> None:
    def tied() -> torch.nn.Module:
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        net[1].weight = net[0].weight
        return net

    one, two = tied(), tied()
    path = checkpoint.save(tmp_path, 1, {"model": one.state_dict()}, {})
    two.load_state_dict(checkpoint.load(path).tensors["model"])
    assert two[1].weight is two[0].weight
    assert torch.equal(one(torch.ones(4)), two(torch.ones(4)))


@pytest.mark.parametrize("bad", [torch.eye(2).to_sparse(), torch.zeros(2, device="meta"), 3.0])
def test_what_is_not_a_dense_tensor_is_refused(tmp_path: Path, bad: object) -> None:
    checkpoint.save(tmp_path, 1, tensors(), {})
    with pytest.raises(DubitoError, match=r"dense tensors.*model\.w"):
        checkpoint.save(tmp_path, 2, {"model": {"w": bad}}, {})  # type: ignore[dict-item]
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


def test_infinite_numbers_in_the_state(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {}, {"best_score": float("-inf"), "nan": [float("nan")]})
    state = checkpoint.load(path).state
    assert state["best_score"] == float("-inf")
    assert state["nan"][0] != state["nan"][0]


def test_the_last_two_and_the_best_are_kept(tmp_path: Path) -> None:
    for step, best in [(1, True), (2, True), (3, False), (4, False), (5, False)]:
        checkpoint.save(tmp_path, step, tensors(step), {}, best=best)
    assert checkpoint.steps(tmp_path) == [2, 4, 5]
    assert [c.step for c in (checkpoint.load_latest(tmp_path), checkpoint.load_best(tmp_path)) if c] == [5, 2]
    checkpoint.save(tmp_path, 6, tensors(), {}, best=True, keep=1)
    assert checkpoint.steps(tmp_path) == [6]


def test_latest_is_the_highest_number_not_the_newest_file_or_the_last_name(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 99_999_999, tensors(), {})
    checkpoint.save(tmp_path, 100_000_000, tensors(), {})
    (tmp_path / "step-99999999" / "state.json").touch()
    latest = checkpoint.load_latest(tmp_path)
    assert latest is not None
    assert latest.step == 100_000_000


def test_no_folder_and_an_empty_folder_have_no_checkpoint(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert checkpoint.load_latest(folder) is None
        assert checkpoint.load_best(folder) is None
    checkpoint.save(tmp_path, 1, {}, {})
    assert checkpoint.load_best(tmp_path) is None


def test_a_broken_one_is_skipped_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = checkpoint.save(tmp_path, 1, tensors(), {})
    broken = checkpoint.save(tmp_path, 2, tensors(), {})
    (broken / "model.safetensors").unlink()
    with caplog.at_level(logging.WARNING, logger="dubito"):
        found = checkpoint.load_latest(tmp_path)
    assert found is not None
    assert found.path == good
    [(path, reason)] = found.skipped
    assert path == broken
    assert "model.safetensors" in reason
    assert str(broken) in caplog.text
    assert reason in caplog.text


def test_nothing_intact_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    (checkpoint.save(tmp_path, 1, tensors(), {}) / "state.json").write_text("{}")
    with pytest.raises(DubitoError, match=r"no intact checkpoint.*seal"):
        checkpoint.load_latest(tmp_path)


def test_after_a_fallback_the_broken_later_one_does_not_push_out_the_good_ones(tmp_path: Path) -> None:
    for step in (10, 20):
        checkpoint.save(tmp_path, step, tensors(step), {})
    (tmp_path / "step-00000020" / "state.json").write_bytes(b"")
    checkpoint.save(tmp_path, 15, tensors(15), {})
    assert checkpoint.steps(tmp_path) == [10, 15]
    assert checkpoint.load_latest(tmp_path).step == 15  # type: ignore[union-attr]


def test_a_good_later_one_is_never_overtaken(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 20, tensors(), {})
    with pytest.raises(DubitoError, match=r"later step.*step-00000020"):
        checkpoint.save(tmp_path, 15, tensors(), {})
    assert checkpoint.steps(tmp_path) == [20]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 3, tensors(0), {"try": 1})
    path = checkpoint.save(tmp_path, 3, tensors(1), {"try": 2})
    assert checkpoint.load(path).state["try"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000003"]


def test_what_a_killed_process_left_is_cleaned_and_never_read(tmp_path: Path) -> None:
    good = checkpoint.save(tmp_path, 1, tensors(), {})
    shutil.copytree(good, tmp_path / ".step-00000009.tmp")
    shutil.copytree(good, tmp_path / ".step-00000001.old")
    assert checkpoint.load_latest(tmp_path).step == 1  # type: ignore[union-attr]
    checkpoint.save(tmp_path, 2, tensors(), {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"step": -1}, "a step"),
        ({"step": True}, "a step"),
        ({"step": 1.0}, "a step"),
        ({"keep": 0}, "at least one"),
        ({"tensors": {"../evil": {}}}, "not a name"),
        ({"tensors": {"": {}}}, "not a name"),
        ({"state": {"step": 3}}, "itself at step"),
        ({"state": {"f": lambda: 0}}, "importable"),
    ],
)
def test_bad_arguments_are_refused(tmp_path: Path, change: dict[str, object], match: str) -> None:
    arguments = {"step": 1, "tensors": {}, "state": {}, **change}
    with pytest.raises(DubitoError, match=match):
        checkpoint.save(tmp_path / "new", **arguments)  # type: ignore[arg-type]
    assert not list(tmp_path.glob("new/*"))


def test_a_folder_that_is_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("mine")
    for name in ("link", "file"):
        with pytest.raises(DubitoError, match="not a folder"):
            checkpoint.save(tmp_path / name, 1, tensors(), {})
    assert not list((tmp_path / "real").iterdir())
    assert (tmp_path / "file").read_text() == "mine"


def test_the_documented_loop_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[1] / "docs" / "reliability.md"
    [block] = page.read_text().split("```python\n")[1:]
    net = torch.nn.Linear(2, 2)
    names = {"net": net, "optimizer": torch.optim.Adam(net.parameters()), "step": 3}
    monkeypatch.chdir(tmp_path)
    exec(block.split("```")[0], names)  # our own page
    assert checkpoint.steps("checkpoints") == [3]
