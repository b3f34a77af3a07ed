"""Canonical JSON: one text per configuration, functions by name, everything else refused by name."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dubito._json import parse_json
from dubito.errors import DubitoError
from dubito.runs import canonical_json, config_hash


@dataclasses.dataclass(frozen=True)
class Settings:
    rate: float = 0.1
    sizes: tuple[int, ...] = (2, 3)
    target: Callable[..., object] | None = None


class Colour(enum.Enum):
    RED = "red"


def function(x: int, y: int = 0) -> int:
    return x + y


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [None, True, "é"]}, '{"a":[null,true,"\\u00e9"],"b":1}'),
        ((1, 2.0), "[1,2.0]"),
        ({3, 1, 2}, "[1,2,3]"),
        (float("inf"), '{"float":"inf"}'),
        (np.float32(0.5), "0.5"),
        (np.int64(3), "3"),
        (np.bool_(True), "true"),
        (torch.tensor(2), "2"),
        (torch.float32, '"torch.float32"'),
        (np.dtype("int8"), '"int8"'),
        (torch.device("cpu"), '"cpu"'),
        (torch.Size([2]), "[2]"),
        (Path("a/b"), '"a/b"'),
        (Colour.RED, '"red"'),
        (np.eye(2, dtype=np.float32), '{"array":"float32","values":[[1.0,0.0],[0.0,1.0]]}'),
        (torch.tensor([1, 2]), '{"array":"int64","values":[1,2]}'),
        (torch.optim.SGD, '{"function":"torch.optim.sgd:SGD"}'),
        (torch.nn.functional.relu, '{"function":"torch.nn.functional:relu"}'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert canonical_json(value) == text
    assert config_hash(value) == hashlib.sha256(text.encode()).hexdigest()


def test_functions_partials_and_dataclasses() -> None:
    here = __name__
    assert json.loads(canonical_json(function)) == {"function": f"{here}:function"}
    nested = functools.partial(functools.partial(function, 1), y=2)
    assert json.loads(canonical_json(nested)) == {
        "function": f"{here}:function",
        "args": [1],
        "kwargs": {"y": 2},
    }
    assert json.loads(canonical_json(Settings(target=function))) == {
        "class": f"{here}:Settings",
        "rate": 0.1,
        "sizes": [2, 3],
        "target": {"function": f"{here}:function"},
    }


def test_a_large_array_stands_as_its_hash() -> None:
    a, b = np.zeros(20_000), np.zeros(20_000)
    assert config_hash(a) == config_hash(b)
    assert len(canonical_json(a)) < 200
    b[7] = 1e-300
    assert config_hash(a) != config_hash(b)


def test_floats_keep_every_bit_and_order_does_not_matter() -> None:
    assert config_hash({"a": 0.1, "b": 2}) == config_hash({"b": 2, "a": 0.1})
    assert config_hash(0.1) != config_hash(np.nextafter(0.1, 1))
    assert config_hash(1) != config_hash(1.0)


def test_the_hash_is_the_same_in_another_process() -> None:
    config = {"z": {"x", "y"}, "a": [1, 0.1], "f": torch.nn.functional.relu}
    code = (
        "import torch; from dubito.runs import config_hash;"
        "print(config_hash({'f': torch.nn.functional.relu, 'a': [1, 0.1], 'z': {'y', 'x'}}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout.strip() == config_hash(config)


def local() -> Callable[[], int]:
    def inner() -> int:
        return 1

    return inner


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (lambda x: x, r"importable functions.*config\.loss.*got a lambda; move it"),
        (functools.partial(lambda x: x), "got a lambda"),
        (functools.partial(function, y=lambda: 0), r"config\.loss\.y.*a lambda"),
        (local(), "the local function inner"),
        (Settings().__repr__, "Settings.__repr__"),
        (torch.nn.ReLU(), "ReLU"),
        (object(), "builtins.object"),
        ({1: 2}, "keys must be text"),
        (b"bytes", "builtins.bytes"),
        (iter([]), "list_iterator"),
        (torch.Generator(), "Generator"),
        (1j, "complex"),
    ],
)
def test_what_cannot_be_repeated_is_refused(value: object, match: str) -> None:
    with pytest.raises(DubitoError, match=match):
        canonical_json({"loss": value})


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "nope", '{"a": 1} x', b"\xff\xfe\xfa", "9" * 10_000]
)
def test_malformed_json_gives_one_sentence(text: str | bytes) -> None:
    with pytest.raises(DubitoError, match=r"not valid JSON at file\.json"):
        parse_json(text, "file.json")


def test_infinity_comes_back() -> None:
    assert parse_json(canonical_json([float("-inf"), {"float": 1}]), "x") == [float("-inf"), {"float": 1}]
