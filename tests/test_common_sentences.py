"""Sentences that are said in many places."""

from __future__ import annotations

import pytest
from torch import nn

from dubito.errors import DubitoError, nearest
from dubito.model import Model


def test_a_plain_layer_is_no_head():
    with pytest.raises(DubitoError, match=r"not a head: expected .*Point.* got Linear"):
        Model(nn.Identity(), nn.Linear(4, 3))


def test_a_few_of_many_names_are_listed():
    assert nearest("zzz", ["b", "a"]) == "choose from a, b"
    long = nearest("zzz", [f"i{k:03}" for k in range(600)])
    assert long.startswith("choose from i000, ")
    assert long.endswith("i011, ... (600 in all)")
