"""A caller who works in double precision (torch.set_default_dtype) gets the same library, in double precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import dubito
from dubito import crowd, noise
from dubito.sklearn import CrowdClassifier, NoisyLabelClassifier


@pytest.fixture
def double() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def blobs() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 60)
    return rng.normal(size=(60, 4)) + 3 * np.eye(4)[y], y


def labels(y: np.ndarray) -> dubito.CrowdLabels:
    A = noise.pairwise_flippers(4, 3, 0.7, torch.Generator().manual_seed(0))
    return dubito.CrowdLabels(*noise.simulate(torch.from_numpy(y), A, torch.Generator().manual_seed(1)))


@pytest.mark.usefixtures("double")
def test_the_loop_trains_and_predicts_in_double_precision():
    x, y = blobs()
    data = dubito.LabelledData(torch.from_numpy(x), torch.from_numpy(y))
    for head in (dubito.Point(4, 3), dubito.Diagonal(4, 3)):
        model = dubito.Model(torch.nn.Identity(), head)
        run = dubito.fit(model, data, epochs=2, batch_size=16, progress=False, device="cpu")
        assert dubito.evaluate.predict(run.model, data).log_p.dtype == torch.float64


@pytest.mark.usefixtures("double")
def test_estimators_work_in_double_precision():
    x, y = blobs()
    options = {"epochs": 2, "random_state": 0}
    single = NoisyLabelClassifier(method="ce", **options).fit(x, y)
    assert single.predict_proba(x).shape == (60, 3)
    several = CrowdClassifier(method="trace", **options).fit(x, labels(y))
    assert several.predict(x).shape == (60,)


def test_votes_and_their_ties_do_not_depend_on_the_default(request):
    table = torch.randint(-1, 3, (200, 4), generator=torch.Generator().manual_seed(0)).numpy()
    table[:, 0] = np.maximum(table[:, 0], 0)
    single = crowd.majority_vote(crowd.CrowdLabels.from_dense(table), seed=3)
    request.getfixturevalue("double")
    twice = crowd.majority_vote(crowd.CrowdLabels.from_dense(table), seed=3)
    assert torch.equal(single[0], twice[0])
    assert torch.equal(single[1], twice[1])
    assert bool(single[1].any())
