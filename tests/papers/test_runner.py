"""One run: every distinct network, procedure and method of the papers trains, is scored and leaves its file."""

from __future__ import annotations

import dataclasses
import math
import time

import pytest
import torch

from dubito.errors import DubitoError
from dubito.papers import PAPERS, Config, items, prepare, records, run_id, runner, stacked
from dubito.papers.prepare import method_of, parts
from dubito.papers.results import path_of, read
from dubito.papers.runner import folder_of, invertible, run, stage_of
from dubito.papers.tables import method_label

# Sets of large images and networks that take long: test_heavy_networks.py; segmentation is tested apart.
ELSEWHERE = ("imagenet", "clothing1m", "cityscapes", "voc")
HEAVY = ("resnet50-cifar", "resnet56", "resnetv2-50")


def tiny(config: Config) -> Config:
    """Two steps on 24 examples; network, noise, method, optimiser and selection stay."""
    length = {"steps": 2} if config.steps else {"epochs": 2}
    if config.epochs and config.batch:
        length = {"epochs": 1}
    samples = {"samples": min(config.samples, 8), "eval_samples": min(config.eval_samples, 8)}
    sizes = {
        "train": 24,
        "validation": min(config.validation, 8),
        "test": 8,
        "batch": min(config.batch, 12),
    }
    return dataclasses.replace(config, **length, **samples, **sizes)


def distinct() -> list[Config]:
    """The first smoke run of each network, method (which brings its procedure) and kind of labels."""
    found: dict[tuple, Config] = {}
    for name in PAPERS:
        for entry in items(name).values():
            for config in entry.make("smoke", None, None):
                key = (config.network, method_label(config), bool(config.annotators))
                found.setdefault(key, config)
    return list(found.values())


def known(config: Config) -> bool:
    return config.data not in ELSEWHERE and config.network not in HEAVY


ALL = [c for c in distinct() if known(c)]


@pytest.mark.parametrize("config", ALL, ids=lambda c: f"{c.paper}-{c.item}-{c.network}-{method_label(c)}")
def test_every_network_procedure_and_method_trains(config, tiny_data):
    result = run(tiny(config), root=tiny_data, device="cpu")
    assert 0 <= result.metrics["test_accuracy"] <= 1
    assert math.isfinite(result.metrics["test_log_likelihood"])
    assert math.isfinite(result.metrics["noisy_test_log_likelihood"])
    if config.validation:
        assert 0 <= result.metrics["validation_accuracy"] <= 1
    assert result.history["steps"] >= 2
    for name in ("probabilities", "features", "regions", "separator"):
        assert (name in config.record) == (name in result.history)


def test_the_list_of_distinct_runs_is_not_empty():
    methods = {c.method for c in ALL}
    assert {
        "ce",
        "smooth",
        "forward",
        "backward",
        "distill",
        "coteaching",
        "mentornet",
        "bootstrap",
    } <= methods
    assert {"gce", "bi-tempered", "nan", "het", "het-tau", "het-full", "ln", "single-cm"} <= methods
    assert {"trace", "no-trace", "gem", "mbem", "wdn", "oracle"} <= methods
    assert {c.network for c in ALL} >= {"lenet5", "cnn4", "cnn9", "resnet32", "wrn-28-2", "mlp", "linear"}


def first(paper: str, item: str, data: str | None = None, **fields: object) -> Config:
    made = items(paper)[item].make("smoke", data, None)
    return tiny(next(c for c in made if all(getattr(c, k) == v for k, v in fields.items())))


def test_a_finished_run_is_read_back_and_its_checkpoints_are_gone(tiny_data, tmp_path):
    config = first("englesson2023", "table1-mnist", method="ce", rate=0.4)
    result = run(config, root=tiny_data, out=tmp_path, device="cpu")
    path = path_of(tmp_path, config)
    before = path.read_bytes()
    assert run(config, root="/nowhere", out=tmp_path).metrics == result.metrics
    assert path.read_bytes() == before
    assert [r.id for r in read(tmp_path)] == [run_id(config)]
    assert not (folder_of(config, tmp_path) / "fit").exists()
    assert folder_of(config, tmp_path).name == run_id(config)[:16]


@pytest.mark.parametrize(
    ("paper", "item", "data", "method"),
    [
        ("englesson2023", "table1-mnist", None, "forward"),
        ("lukasik2020", "figure6", "mnist", "distill"),
        ("lukasik2020", "figure2", "mnist", "backward"),
    ],
)
def test_methods_with_a_first_stage_can_be_kept_on_disk(paper, item, data, method, tiny_data, tmp_path):
    config = dataclasses.replace(first(paper, item, data, method=method), network="lenet5", init="glorot")
    kept = run(config, root=tiny_data, out=tmp_path, device="cpu")
    assert kept.metrics == run(config, root=tiny_data, device="cpu").metrics


@pytest.mark.paper("englesson2023 fig. 6", "englesson2023 fig. 4")
def test_residuals_and_curves_are_recorded(tiny_data):
    residuals = run(first("englesson2023", "figure6", "mnist"), root=tiny_data, device="cpu")
    found = residuals.history["residuals"]
    assert sum(found["learned_clean"]) + sum(found["learned_noisy"]) == 24
    assert sum(found["identity_noisy"]) == sum(found["learned_noisy"]) > 0
    assert 0 <= residuals.metrics["noisy_small_residuals"] <= 1
    longer = dataclasses.replace(first("englesson2023", "figure4", "mnist", method="ln"), epochs=3)
    curves = run(longer, root=tiny_data, device="cpu").history
    assert curves["curves"]["epoch"] == [1, 2, 3]
    assert len(curves["validation_clean_accuracy"]) == 3


@pytest.mark.parametrize("method", ["ce", "gce", "bi-tempered", "ln"])
def test_stacked_runs_equal_plain_ones(method, tiny_data):
    config = dataclasses.replace(first("englesson2023", "table1-mnist", method=method, rate=0.4), epochs=3)
    pair = [config, dataclasses.replace(config, seed=1)]
    assert all(map(stacked.stackable, pair))
    together = {r.config.seed: r for r in stacked.run(pair, root=str(tiny_data), device="cpu")}
    for one in pair:
        alone = run(one, root=tiny_data, device="cpu").metrics
        for name in ("test_log_likelihood", "validation_log_likelihood"):
            assert together[one.seed].metrics[name] == pytest.approx(alone[name], rel=1e-4)


@pytest.mark.paper("collier2020 fig. 1")
def test_half_precision_reaches_the_loop(tiny_data, monkeypatch):
    """Not every processor multiplies in bfloat16, so that only the request is checked here."""
    asked, fit = [], runner.fit
    monkeypatch.setattr(runner, "fit", lambda *a, amp, **k: (asked.append(amp), fit(*a, **k))[1])
    config = tiny(first("englesson2023", "table1-mnist", method="ce", rate=0.4))
    for half in (False, True):
        run(config, root=tiny_data, device="cpu", half=half)
    assert asked == [False, True]


def test_samples_differ_between_training_and_prediction():
    config = first("collier2020", "figure1", "mnist", method="het-tau", samples=1)
    model = prepare.model(config, (1, 28, 28), 10)
    assert (model.train().samples, model.eval().samples) == (1, 8)
    log_p = model(torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(log_p.exp().sum(-1), torch.ones(2), atol=1e-5)


def test_noise_rate_is_the_realised_one(tiny_data):
    config = first("collier2020", "table1", "mnist", method="coteaching")
    data = parts(config, root=tiny_data)
    share = (data.train.labels != data.train.clean).float().mean()
    assert stage_of(config, data, lambda: 1 / 0).given == {"rate": pytest.approx(float(share))}
    assert 0.02 < float(share) < 0.5
    assert data.test.clean is not None  # the noisy test set keeps the clean labels for scoring
    assert data.valid is not None


def test_votes_of_one_annotator_are_that_annotators_labels(tiny_data):
    config = dataclasses.replace(
        first("tanno2019", "figure6", method="ce", per_item=1, skill=0.3), train=200, validation=20
    )
    data = parts(config, root=tiny_data)
    right = (data.train.labels == data.train.clean).float().mean()
    assert abs(float(right) - 0.3) < 0.12
    assert data.train.crowd is None
    joint = parts(dataclasses.replace(config, method="trace", reading=()), root=tiny_data)
    assert torch.equal(joint.train.crowd.label, data.train.labels)


@pytest.mark.paper("tanno2019 alg. 2")
def test_matrices_of_annotators_are_scored(tiny_data):
    shared = {"per_item": 1, "skill": 0.5}
    gem = run(first("tanno2019", "figure3", method="gem", **shared), root=tiny_data, device="cpu")
    assert gem.metrics["cm_error_entry"] == pytest.approx(gem.metrics["cm_error"] / 10)
    oracle = run(first("tanno2019", "figure3", method="oracle", **shared), root=tiny_data, device="cpu")
    assert oracle.metrics["cm_error"] < 1e-8  # the true matrices, kept fixed
    assert oracle.metrics["skill_correlation"] == pytest.approx(1.0)
    assert len(oracle.history["confusion"]["true"]) == 5


def test_what_cannot_be_run_is_refused_in_a_sentence(tiny_data):
    config = first("englesson2023", "table1-mnist", method="gce")
    with pytest.raises(DubitoError, match="did you mean"):
        method_of(dataclasses.replace(config, method="bitempered"))
    with pytest.raises(DubitoError, match="device"):
        run(config, root=tiny_data, device="tpu")


def test_an_estimate_that_cannot_be_inverted_is_mixed_with_the_identity():
    good = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    kept, share = invertible(good)
    assert torch.equal(kept, good)
    assert share == 0.0
    mixed, share = invertible(torch.full((3, 3), 1 / 3, dtype=torch.float64))
    assert share == 0.1
    assert float(torch.linalg.cond(mixed)) <= 100
    assert torch.allclose(mixed.sum(1), torch.ones(3, dtype=torch.float64))


def test_stacks_side_by_side_share_the_time(tiny_data):
    made = [first("englesson2023", "table1-mnist", method=m, rate=0.4) for m in ("ce", "gce")]
    started = time.monotonic()
    found = stacked.run(made, root=str(tiny_data), device="cpu", at_once=2)
    wall = time.monotonic() - started
    assert [r.history["time"] for r in found] == ["share", "share"]
    assert 0.5 * wall < sum(r.seconds for r in found) <= wall


def test_a_run_that_diverged_says_so(tiny_data):
    config = first("englesson2023", "table1-mnist", method="ln", rate=0.4)
    data = parts(config, root=tiny_data)
    model = prepare.model(config, (1, 28, 28), 10)
    torch.nn.init.constant_(next(model.head.parameters()), float("nan"))
    with pytest.raises(DubitoError, match=r"diverged.*ln: covariance=full"):
        records.scored(config, model, data)


def test_each_method_is_stacked_in_its_own_precision(tiny_data, monkeypatch):
    """Waves are of one precision, and the order of the table does not keep stacks apart that could share one."""
    made = [first("englesson2023", "table1-mnist", method=m, rate=0.4) for m in ("ce", "ln", "gce")]
    waves, plain = [], stacked.side_by_side

    def seen(stacks, since):
        waves.append([(s.configs[0].method, s.stack.convolutions) for s in stacks])
        return plain(stacks, since)

    monkeypatch.setattr(stacked, "side_by_side", seen)
    stacked.run(made, root=str(tiny_data), device="cpu")
    assert waves == [[("ce", torch.bfloat16), ("gce", torch.bfloat16)], [("ln", torch.float32)]]
    stacked.run(made[:2], root=str(tiny_data), device="cpu", convolutions=torch.float32)
    assert waves[2:] == [[("ce", torch.float32)], [("ln", torch.float32)]]
