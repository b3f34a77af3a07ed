"""Longer comparisons: annotators whose errors depend on the input, and flippers on MNIST."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "crowd_joint.py"


@pytest.fixture(scope="module")
def bench():
    if not BENCHMARK.is_file():
        pytest.skip("the benchmarks are not beside the tests")
    spec = importlib.util.spec_from_file_location("crowd_joint", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules["crowd_joint"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.nightly
def test_matrices_over_a_heteroscedastic_head_beat_matrices_alone(bench):
    """Errors that depend on the input: higher accuracy and likelihood on held-out items, mean over 5 seeds."""
    plain, composed = ([bench.composed(seed, method) for seed in range(5)] for method in bench.INPUT_METHODS)
    for score in ("clean_accuracy", "log_likelihood"):
        gain = np.array([b[score] - a[score] for a, b in zip(plain, composed)])
        assert gain.mean() > 0, (score, gain)
        assert (gain > 0).sum() >= 4, (score, gain)


@pytest.mark.nightly
@pytest.mark.paper("tanno2019 fig. 3")
def test_trace_beats_em_on_mnist_with_one_label_per_image(bench, shared_data, monkeypatch):
    """Reduced: a perceptron, 10,000 images, 15 epochs; the paper has a CNN, 54,000 images and 200 epochs."""
    monkeypatch.setattr(bench, "data_root", lambda: shared_data)
    found = {name: bench.mnist(0, name) for name in bench.MNIST_METHODS}
    for rival in bench.MNIST_METHODS[1:]:
        assert found["trace"]["test_accuracy"] > found[rival]["test_accuracy"]
        assert found["trace"]["confusion_error"] < found[rival]["confusion_error"]
