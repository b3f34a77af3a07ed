"""What makes a run this run: a folder takes no other model and no other data, and older folders go on."""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from small import network, problem, scenes
from torch import Tensor, nn

from dubito import channels, heads, noise
from dubito.backbones import MLP
from dubito.compose import train_method
from dubito.data import LabelledData, from_torch
from dubito.errors import DubitoError
from dubito.losses import logistic_normal_nll
from dubito.model import Model
from dubito.runs import read_config
from dubito.segmentation import SegmentationModel
from dubito.train import fit

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
OTHER = "another configuration"


def flip(rate: float) -> Tensor:
    return noise.flip_to_other(3, rate)


def of_pixels(**options: Any) -> Model:
    model = scenes()[1]
    return SegmentationModel(model.backbone, model.head, **options)


def sharp(logits: Tensor) -> Tensor:
    return (3 * logits).log_softmax(-1)


def flat(logits: Tensor) -> Tensor:
    return (logits / 3).log_softmax(-1)


class Own(nn.Module):
    """A channel of somebody else's, with a matrix that is no weight and statistics that training changes."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("given", flip(rate).float())
        self.norm = nn.BatchNorm1d(3)

    def forward(self, log_p: Tensor) -> Tensor:
        return (log_p.exp() @ self.given + 0 * self.norm(log_p)).log()


DIFFER: dict[str, tuple[Callable[[], Model], Callable[[], Model], str]] = {
    "temperature": (lambda: network(temperature=0.5), lambda: network(temperature=5.0), "temperature"),
    "link": (lambda: network(link=sharp), lambda: network(link=flat), "link"),
    "samples": (
        lambda: network(head=heads.Diagonal, integration="mc", samples=3),
        lambda: network(head=heads.Diagonal, integration="mc", samples=4),
        "samples",
    ),
    "integration": (
        lambda: network(head=heads.Diagonal),
        lambda: network(head=heads.Diagonal, integration="qmc"),
        "integration",
    ),
    "matrix": (
        lambda: network(channel=channels.FixedTransition(flip(0.1))),
        lambda: network(channel=channels.FixedTransition(flip(0.4))),
        "buffers.channel.matrix",
    ),
    "own matrix": (lambda: network(channel=Own(0.1)), lambda: network(channel=Own(0.4)), "buffers"),
    "start of a matrix": (
        lambda: network(channel=channels.LearnedTransition(3)),
        lambda: network(channel=channels.LearnedTransition(3, diagonal=0.6)),
        "diagonal",
    ),
    "given start of a matrix": (
        lambda: network(channel=channels.LearnedTransition(3, init=flip(0.1))),
        lambda: network(channel=channels.LearnedTransition(3, init=flip(0.4))),
        "buffers",
    ),
    "start of a head": (
        lambda: network(head=heads.Point),
        lambda: network(head=partial(heads.Point, init="torch")),
        "init",
    ),
    "covariance": (
        lambda: network(head=heads.LogisticNormal),
        lambda: network(head=partial(heads.LogisticNormal, covariance="diagonal")),
        "covariance",
    ),
    "upsample": (lambda: of_pixels(), lambda: of_pixels(upsample="latent"), "upsample"),
    "corners": (lambda: of_pixels(), lambda: of_pixels(align_corners=True), "align_corners"),
}


@pytest.mark.parametrize("name", DIFFER)
def test_another_model_is_another_run(name: str, tmp_path: Path) -> None:
    first, second, told = DIFFER[name]
    data = scenes()[0] if isinstance(first(), SegmentationModel) else problem(20)
    loss = (
        {"loss": partial(logistic_normal_nll, lam=1.0)}
        if isinstance(first().head, heads.LogisticNormal)
        else {}
    )
    options: dict[str, Any] = {"epochs": 1, "out": tmp_path / "run", "progress": False, **loss}
    trained = fit(first(), data, **options).model
    with pytest.raises(DubitoError, match=f"{OTHER}.*settings.*{told}"):
        fit(second(), data, **options)
    fit(first(), data, **options)
    fit(trained, data, **options)  # weights and running statistics are no part of it


@pytest.mark.parametrize(
    ("method", "params", "others"),
    [
        ("het:temperature=0.5", {}, {"temperature": 5.0}),
        ("forward", {"transition": flip(0.1)}, {"transition": flip(0.4)}),
    ],
)
def test_another_parameter_of_a_method_is_another_run(
    method: str, params: dict[str, Any], others: dict[str, Any], tmp_path: Path
) -> None:
    def backbone(source: torch.Generator) -> nn.Module:
        return MLP(6, (4,), generator=source)

    options: dict[str, Any] = {"epochs": 1, "out": tmp_path / "run", "progress": False}
    train_method(method, params, backbone, problem(20), **options)
    with pytest.raises(DubitoError, match=OTHER):
        train_method(method, others, backbone, problem(20), **options)
    train_method(method, params, backbone, problem(20), **options)


def zeroed(data: LabelledData) -> LabelledData:
    """Other inputs, but for the 256 of 2,000 rows that lie evenly over the whole."""
    assert isinstance(data.inputs, Tensor)
    kept = torch.linspace(0, len(data) - 1, 256).long()
    inputs = torch.zeros_like(data.inputs)
    inputs[kept] = data.inputs[kept]
    return replace(data, inputs=inputs)


class Lazy:
    """Rows that are decoded when asked for."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self.values[rows]


def lazy(sign: int = 1, **parts: Any) -> LabelledData:
    data = problem(20)
    return replace(data, inputs=Lazy(sign * data.inputs), **parts)  # type: ignore[operator]


CHANGES: dict[str, tuple[Callable[[], LabelledData], Callable[[], LabelledData]]] = {
    "mean": (
        lambda: problem(20).with_statistics((0.0,) * 6, (1.0,) * 6),
        lambda: problem(20).with_statistics((3.0,) * 6, (1.0,) * 6),
    ),
    "no mean": (
        lambda: problem(20).with_statistics((0.0,) * 6, (1.0,) * 6),
        lambda: problem(20),
    ),
    "std": (
        lambda: problem(20).with_statistics((0.0,) * 6, (1.0,) * 6),
        lambda: problem(20).with_statistics((0.0,) * 6, (2.0,) * 6),
    ),
    "clean": (lambda: problem(20), lambda: replace(problem(20), clean=torch.zeros(20).long())),
    "rows in between": (lambda: problem(2000), lambda: zeroed(problem(2000))),
    "lazy": (lambda: lazy(), lambda: lazy(-1)),
    "ids": (
        lambda: lazy(ids=[f"{i}.png" for i in range(20)]),
        lambda: lazy(ids=[f"{i}.jpg" for i in range(20)]),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("where", ["data", "valid"])
def test_changed_data_is_another_run(name: str, where: str, tmp_path: Path) -> None:
    first, second = (dict.fromkeys(("data", "valid"), make()) for make in CHANGES[name])
    options: dict[str, Any] = {"epochs": 1, "out": tmp_path / "run", "progress": False}
    fit(network(), **first, **options)
    with pytest.raises(DubitoError, match=f"{OTHER}.*{where}.contents"):
        fit(network(), **first | {where: second[where]}, **options)
    fit(network(), **first, **options)


def test_the_same_data_in_another_form_is_the_same_run(tmp_path: Path) -> None:
    """A subset and a copy of its rows hold the same examples."""
    whole, positions = problem(40), torch.arange(5, 35)
    part = whole.subset(positions)
    assert isinstance(whole.inputs, Tensor)
    copied = replace(part, inputs=whole.inputs[positions], rows=None)
    for data in (part, copied):
        fit(network(), data, epochs=1, out=tmp_path / "run", progress=False)


class Noisy:
    """Somebody's data set that draws: from torch's generator, or from one that nobody sees."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self.draw, self.values = draw, problem(20)

    def __len__(self) -> int:
        return 20

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        assert isinstance(self.values.inputs, Tensor)
        return self.values.inputs[i] + 1e-3 * self.draw(), int(self.values.labels[i])


def drawn() -> float:
    return float(torch.rand(()))


@pytest.mark.parametrize("draw", [drawn, random.Random(0).random])
def test_data_that_draws_is_taken_up_again_and_draws_nothing_here(
    draw: Callable[[], float], tmp_path: Path
) -> None:
    labels = problem(20).labels.tolist()
    before = torch.get_rng_state()
    for _ in range(2):
        data = from_torch(Noisy(draw), labels=labels, classes=[0, 1, 2])
        fit(network(), data, epochs=1, out=tmp_path / "run", progress=False)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def before(tmp_path: Path) -> tuple[ModuleType, Path]:
    """The maker of the fixture, and a copy of what an earlier version had written when it was killed."""
    place = FIXTURES / "make_run_v1.py"
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    shutil.copytree(FIXTURES / "run-v1", tmp_path / "old")
    return made, tmp_path / "old"


@pytest.mark.rel
def test_a_run_of_an_earlier_version_goes_on(before: tuple[ModuleType, Path]) -> None:
    """Scorecard 31: its config knows neither settings nor contents, and stays as it is."""
    made, old = before
    config = read_config(old)
    assert "settings" not in config["config"]
    assert "contents" not in config["config"]["data"]
    for _ in range(2):  # goes on at step 4 of 12, then is taken up as finished
        found, alone = made.start(old), made.start(None)
        for name, value in alone.model.state_dict().items():
            assert torch.allclose(found.model.state_dict()[name], value, atol=1e-6), name
        assert (len(found.history), found.steps) == (3, 12)
    starts = (old / "starts.jsonl").read_text().splitlines()
    assert ['"from_step":4' in line for line in starts] == [False, True, False]
    assert read_config(old) == config


def test_another_run_does_not_go_on_in_a_folder_of_an_earlier_version(
    before: tuple[ModuleType, Path],
) -> None:
    made, old = before
    with pytest.raises(DubitoError, match=f"{OTHER}.*clip=None instead of 1.0"):
        made.start(old, clip=1.0)
    with pytest.raises(DubitoError, match=rf"{OTHER}.*data.sha256="):
        made.start(old, lowest=-0.5)
