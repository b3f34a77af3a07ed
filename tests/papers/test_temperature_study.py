"""The study of temperatures: its runs, the stacks that train them, and the page made from its lines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dubito.papers import item, runner, temperature_runs
from dubito.papers.temperature import EXACT

ROOT = Path(__file__).resolve().parents[2]


def test_every_way_of_training_over_the_papers_temperatures():
    configs = item("temperature.mnist").make("paper", None, None)
    assert len(configs) == len(set(configs)) == 3 * (1 + 5 * 18)
    sampled = [c for c in configs if c.method != "ce"]
    assert {c.samples for c in sampled} == {EXACT, 1, 10, 100, 1000}
    assert len({c.param("temperature") for c in sampled}) == 18
    assert all((c.noise, c.matrix, c.noisy_test) == ("class_dependent", "main", True) for c in configs)


@pytest.fixture(scope="module")
def stacked(tiny_data):
    configs = [c for c in item("temperature.mnist").make("smoke", None, None) if c.samples < 100]
    return temperature_runs.run(configs, root=str(tiny_data), device="cpu")


def test_stacks_of_all_ways(stacked):
    """Every run is scored, and the fixed rule is right on its latents."""
    assert {r.config.samples for r in stacked} == {0, 1, 10}
    for result in stacked:
        assert result.metrics["rule_error_most"] < 1e-4
        assert -5 < result.metrics["noisy_test_log_likelihood"] < 0
        assert 0 <= result.metrics["noisy_test_accuracy"] <= 1
        assert result.metrics["validation_log_likelihood"] < 0


def test_an_exact_stack_equals_the_plain_runner(stacked, tiny_data):
    """The fixed rule, mapped over runs, against the refined one in the plain loop."""
    ours = next(r for r in stacked if (r.config.samples, r.config.param("temperature")) == (0, 100.0))
    plain = runner.run(ours.config, root=tiny_data, device="cpu")
    for name in ("noisy_test_log_likelihood", "test_accuracy", "validation_log_likelihood"):
        assert plain.metrics[name] == pytest.approx(ours.metrics[name], abs=2e-3), name


def test_sampled_runs_predict_exactly(tiny_data):
    """One draw in training, the exact integral in evaluation."""
    config = next(c for c in item("temperature.mnist").make("smoke", None, None) if c.samples == 1)
    done = runner.trained(config, root=tiny_data, device="cpu")
    x = done.parts.test.batch(torch.arange(8))
    done.model.train()
    assert done.model.integration == "mc"
    done.model.eval()
    assert done.model.integration == "auto"
    with torch.no_grad():
        assert torch.equal(done.model(x), done.model(x))


def test_examples_have_draws_of_their_own(tiny_data):
    config = next(c for c in item("temperature.mnist").make("smoke", None, None) if c.samples == 10)
    runs = temperature_runs.TemperatureRuns(
        [config], [temperature_runs.prepare.parts(config, root=tiny_data)], device="cpu"
    )
    noise = runs.stack._noise(6)["latent"]
    assert noise.shape == (1, 10, 6, 10)
    assert len(noise.flatten().unique()) == noise.numel()


def test_the_command_takes_the_stacks(tiny_data, tmp_path):
    """`dubito paper run temperature.mnist --streams`: results lie where those of papers do."""
    from dubito.papers.streams import on_streams

    configs = [c for c in item("temperature.mnist").make("smoke", None, None) if c.samples == 1]
    on_streams(configs, tmp_path, root=str(tiny_data), device="cpu", say=lambda text: None)
    assert len(list((tmp_path / "temperature/mnist").glob("*.json"))) == len(configs)


def test_the_page_is_what_the_lines_say():
    tool = ROOT / "tools/temperature_page.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
