"""The worked examples run and do what they say. `make examples` has the packages of others."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Import an example by name, or say which package is missing."""

    def load(name, needs=""):
        if needs and importlib.util.find_spec(needs) is None:
            pytest.skip(f"{needs} is not installed (make examples)")
        if needs:
            from dubito.backbones._foreign import declare_operators

            declare_operators()  # so that torchvision can be imported beside a CPU build of torch
        monkeypatch.syspath_prepend(str(EXAMPLES))
        for known in ("digits", name):
            sys.modules.pop(known, None)
        return importlib.import_module(name)

    return load


def test_plain_loop(example):
    scores = example("pytorch_loop").main()
    assert scores["gce"] > scores["cross-entropy"] + 0.05
    assert scores["gce"] > 0.85


def test_scikit_learn_pipeline(example):
    assert example("sklearn_pipeline").main() > 0.8


def test_pandas_table(example):
    assert example("pandas_crowd").main() > 0.85


def test_missing_not_at_random(example):
    """Figure 5b of Collier et al.: scales tell where a hidden feature makes labels noisy."""
    found = example("missing_not_at_random").main()
    assert found["heteroscedastic"] > found["plain"] + 0.02
    assert found["heteroscedastic, doubt against noise"] > found["plain, doubt against noise"] + 0.05


@pytest.mark.nightly
def test_timm(example):
    assert example("timm_finetune", "timm").main() > 0.6


@pytest.mark.nightly
def test_hugging_face(example):
    assert example("hugging_face_trainer", "transformers").main() > 0.7


def test_hugging_face_batches_add_up(example, monkeypatch):
    """With a loss of one's own the Trainer does not divide by the batches of a step: the loss must."""
    package = types.ModuleType("transformers")
    for name in ("BertConfig", "BertForSequenceClassification", "Trainer", "TrainingArguments"):
        setattr(package, name, None)
    monkeypatch.setitem(sys.modules, "transformers", package)
    loss = example("hugging_face_trainer").robust_loss
    logits, labels = torch.randn(12, 2), torch.arange(12) % 2
    whole = loss(types.SimpleNamespace(logits=logits), labels)
    parts = zip(logits.split(5), labels.split(5))
    added = sum(loss(types.SimpleNamespace(logits=z), y, num_items_in_batch=12) for z, y in parts)
    torch.testing.assert_close(added, whole)


@pytest.mark.nightly
def test_lightning(example):
    assert example("lightning_module", "lightning").main() > 0.85


def test_every_example_is_tested_and_shown():
    shown = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    tests = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f"examples/{path.name}" in shown, path.name
        assert path.stem in tests, path.name
