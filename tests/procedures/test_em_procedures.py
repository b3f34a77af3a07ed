"""Generalised and model-bootstrapped EM against transcriptions of the algorithms, by hand and in loops."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from dubito import heads, noise, optim
from dubito._batches import Batches
from dubito.data import LabelledData
from dubito.data._labelled import Triplets
from dubito.errors import DubitoError
from dubito.evaluate import predict
from dubito.model import Model
from dubito.procedures import CrossFittedEM, GeneralisedEM, ModelBootstrappedEM, Plain
from dubito.procedures.posterior import count_matrices, log_evidence, posterior, vote_shares, weigh_model
from dubito.train import fit

R, K = 3, 3


def crowd_data(seed: int = 0, n: int = 60, per_item: int = 2, skill: float = 0.7) -> LabelledData:
    source = torch.Generator().manual_seed(seed)
    y = torch.randint(0, K, (n,), generator=source)
    x = torch.randn(n, K, generator=source) + 3 * torch.eye(K)[y]
    A = noise.pairwise_flippers(R, K, skill, source)
    found = Triplets(*noise.simulate(y, A, source, per_item))
    return LabelledData(x, torch.full((n,), -1), clean=y, crowd=found, annotators=tuple("abc"))


def linear(seed: int = 0) -> Model:
    return Model(nn.Identity(), heads.Point(K, K, generator=torch.Generator().manual_seed(seed)))


def run(procedure, data, *, epochs=4, lr=0.02, out=None, **options):
    return fit(
        linear(),
        data,
        procedure=partial(procedure, **options),
        epochs=epochs,
        batch_size=16,
        optimizer=partial(optim.adam, lr=lr),
        out=out,
        device="cpu",
        progress=False,
    )


def naive_matrices(q, crowd):
    """(M2) of both algorithms, one label at a time in float64."""
    A, total = np.zeros((R, K, K)), np.zeros((R, K))
    for n, r, y in zip(*(t.tolist() for t in crowd)):
        for k in range(K):
            A[r, k, y] += float(q[n, k])
            total[r, k] += float(q[n, k])
    for r in range(R):
        for k in range(K):
            A[r, k] = A[r, k] / total[r, k] if total[r, k] > 0 else 1 / K
    return A


def naive_posterior(prior, A, crowd, n):
    """(E): prior (n, K) times the annotators' rows, normalised."""
    q = np.array(prior, dtype=np.float64).copy()
    for i, r, y in zip(*(t.tolist() for t in crowd)):
        q[i] *= A[r, :, y]
    return q / q.sum(1, keepdims=True)


def test_one_item_by_hand():
    crowd = Triplets(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))
    q = vote_shares(crowd, 3, 2)
    assert q.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.5, 0.5]]
    A = count_matrices(q, crowd, 2)
    # Annotator 1 gave label 1 to item 0 (half of either class) and to item 1 (class 1); annotator 0 label 0.
    assert A[0].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert A[1].tolist() == [[0.0, 1.0], [0.0, 1.0]]
    A = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.3], [0.4, 0.6]]])
    found = posterior(torch.tensor([0.25, 0.75]).log(), log_evidence(A, crowd, 3))
    wanted = torch.tensor([0.25 * 0.9 * 0.3, 0.75 * 0.2 * 0.6])
    torch.testing.assert_close(found[0], wanted / wanted.sum())
    torch.testing.assert_close(found[2], torch.tensor([0.25, 0.75]))


@pytest.mark.paper("tanno2019 alg. 2")
def test_generalised_em_is_algorithm_2():
    data = crowd_data()
    procedure = GeneralisedEM(linear(3), rounds=2)
    procedure.begin(data)
    votes = procedure.posteriors.double().numpy().copy()
    for _ in range(2):
        p = predict(procedure.model, data).log_p.exp().numpy()
        procedure.update(data)
        A = naive_matrices(votes, data.crowd)
        votes = naive_posterior(p, A, data.crowd, len(data))
        np.testing.assert_allclose(procedure.matrices.numpy(), A, atol=1e-6)
        np.testing.assert_allclose(procedure.posteriors.numpy(), votes, atol=1e-6)


@pytest.mark.paper("tanno2019 alg. 3")
@pytest.mark.parametrize("class_prior", [True, False])
def test_model_bootstrapped_em_is_algorithm_3(class_prior):
    data = crowd_data()
    trained = run(Plain, data, epochs=2).model
    procedure = ModelBootstrappedEM(trained, class_prior=class_prior)
    procedure.begin(data)
    procedure.update(data)
    hard = np.eye(K)[predict(trained, data).labels.numpy()]
    A = naive_matrices(hard, data.crowd)
    prior = np.tile(hard.mean(0), (len(data), 1)) if class_prior else np.ones((len(data), K))
    np.testing.assert_allclose(procedure.matrices.numpy(), A, atol=1e-6)
    found = naive_posterior(prior, np.maximum(A, 1e-38), data.crowd, len(data))
    np.testing.assert_allclose(procedure.posteriors.numpy(), found, atol=1e-5)


@pytest.mark.paper("tanno2019 alg. 2")
def test_the_network_learns_from_posteriors_and_rounds_share_the_epochs(monkeypatch):
    seen = []
    monkeypatch.setattr(GeneralisedEM, "update", lambda self, data: seen.append(self.epoch))
    run(GeneralisedEM, crowd_data(), epochs=10, rounds=3)
    assert seen == [4, 7, 9]  # after 4 and 7 epochs, and at the end
    for epochs, rounds in ((11, 10), (12, 3), (3, 20)):  # as many rounds as asked for, at most one an epoch
        seen.clear()
        run(GeneralisedEM, crowd_data(), epochs=epochs, rounds=rounds)
        assert len(seen) == min(epochs, rounds)

    data = crowd_data()
    procedure = GeneralisedEM(linear())
    procedure.begin(data)
    batch = Batches(data)(torch.arange(len(data)))
    total = procedure(batch, lambda _: torch.Generator())
    log_p = predict(procedure.model, data).log_p
    torch.testing.assert_close(total, -(procedure.posteriors * log_p).sum(1).mean())


@pytest.mark.paper("tanno2019 alg. 2")
def test_one_label_per_item_leaves_generalised_em_where_it_was():
    data = crowd_data(per_item=1, n=120)
    found = run(GeneralisedEM, data, epochs=6, rounds=3, lr=0.05).procedure
    eye = torch.eye(K).expand(R, K, K)
    torch.testing.assert_close(found.matrices, eye, atol=1e-6, rtol=0)
    torch.testing.assert_close(found.posteriors, torch.eye(K)[data.crowd.label], atol=1e-6, rtol=0)


@pytest.mark.paper("tanno2019 alg. 3")
@pytest.mark.parametrize("procedure", [ModelBootstrappedEM, CrossFittedEM])
def test_one_label_per_item_is_enough_for_predictions_to_teach_matrices(procedure):
    data = crowd_data(per_item=1, n=400)
    found = run(procedure, data, epochs=12, rounds=3, lr=0.05).procedure
    assert (found.matrices - torch.eye(K)).abs().max() > 0.15
    assert found.matrices.diagonal(dim1=1, dim2=2).mean() == pytest.approx(0.7, abs=0.12)


def test_posteriors_are_part_of_the_checkpoint():
    data = crowd_data()
    options = {"epochs": 6, "rounds": 3}
    whole = run(ModelBootstrappedEM, data, **options).procedure
    fresh = ModelBootstrappedEM(linear())
    fresh.begin(data)
    fresh.load_state_dict(whole.state_dict())
    assert torch.equal(fresh.posteriors, whole.posteriors)
    assert torch.equal(fresh.matrices, whole.matrices)


@pytest.mark.parametrize("procedure", [GeneralisedEM, CrossFittedEM])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, monkeypatch, procedure):
    data, options = crowd_data(), {"epochs": 6, "rounds": 3}
    whole = run(procedure, data, **options, out=tmp_path / "whole").procedure
    begin_epoch = procedure.begin_epoch

    def stopping(self, epoch, data):
        if epoch == 5:
            raise InterruptedError
        begin_epoch(self, epoch, data)

    with monkeypatch.context() as patched:
        patched.setattr(procedure, "begin_epoch", stopping)
        with pytest.raises(InterruptedError):
            run(procedure, data, **options, out=tmp_path / "cut")
    other = run(procedure, data, **options, out=tmp_path / "cut").procedure
    for name, value in whole.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_items_without_labels_teach_nothing():
    data = crowd_data()
    kept = data.crowd.item != 5
    data = LabelledData(
        data.inputs, data.labels, crowd=Triplets(*(t[kept] for t in data.crowd)), annotators=data.annotators
    )
    procedure = GeneralisedEM(linear())
    procedure.begin(data)
    assert procedure(Batches(data)(torch.tensor([5])), lambda _: torch.Generator()).item() == 0.0


def test_cross_fitting_keeps_every_item_from_its_own_network():
    data = crowd_data(n=40)
    procedure = CrossFittedEM(linear(), folds=4, seed=1)
    procedure.begin(data)
    held = (procedure.fold == 2).nonzero().flatten()
    procedure(Batches(data)(held), lambda _: torch.Generator()).backward()
    touched = [any(p.grad is not None for p in other.parameters()) for other in procedure.others]
    assert touched == [True, True, False, True]
    rows = procedure.predictions(data)
    torch.testing.assert_close(rows[held], predict(procedure.others[2], data.subset(held)).log_p)


def test_a_timid_model_is_believed_and_a_loud_one_toned_down():
    source = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 3, (500,), generator=source)
    hot = torch.eye(3)[truth]
    labels = (0.8 * hot + 0.1 * (1 - hot)).log()
    timid = (0.2 * hot).log_softmax(-1)
    assert weigh_model(timid, labels)[0].max() > timid[0].max()
    wrong = torch.eye(3)[torch.randint(0, 3, (500,), generator=source)]
    loud = (5 * wrong).log_softmax(-1)
    assert weigh_model(loud, labels)[0].max() < loud[0].max()


def test_cross_fitting_leaves_copies_of_an_item_out_together():
    data = crowd_data(n=80)
    inputs = data.inputs.clone()
    inputs[60:] = inputs[:20]
    procedure = CrossFittedEM(linear(), folds=4, seed=1)
    procedure.begin(dataclasses.replace(data, inputs=inputs))
    assert torch.equal(procedure.fold[60:], procedure.fold[:20])
    other = CrossFittedEM(linear(), folds=4, seed=1)
    other.begin(data)
    assert torch.equal(procedure.fold[:60], other.fold[:60])
    assert not torch.equal(other.fold[60:], other.fold[:20])


def test_what_is_refused():
    data = crowd_data()
    single = LabelledData(data.inputs, data.clean)
    with pytest.raises(DubitoError, match="annotators"):
        run(GeneralisedEM, single)
    with pytest.raises(DubitoError, match="rounds"):
        GeneralisedEM(linear(), rounds=0)
    with pytest.raises(DubitoError, match="two folds"):
        CrossFittedEM(linear(), folds=1)
