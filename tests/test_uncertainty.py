"""Total, aleatoric and epistemic parts of the uncertainty of a prediction."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from dubito import heads, uncertainty
from dubito._context import forked
from dubito.data import LabelledData
from dubito.errors import DubitoError
from dubito.model import Model


def naive(p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three entropies of members' probabilities (M, N, K), term by term."""
    members, n, classes = p.shape
    total, aleatoric = np.zeros(n), np.zeros(n)
    for i in range(n):
        for k in range(classes):
            mean = sum(p[m, i, k] for m in range(members)) / members
            total[i] -= mean * math.log(mean)
            aleatoric[i] -= sum(p[m, i, k] * math.log(p[m, i, k]) for m in range(members)) / members
    return total, aleatoric, total - aleatoric


class Dropped(nn.Module):
    out_features = 6

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(p)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.norm(self.layer(x)))


def model_of(head: type[heads.Head] = heads.Point, seed: int = 0, p: float = 0.5, **options) -> Model:
    source = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Model(Dropped(p), head(6, 4, generator=source), **options)


def examples(n: int = 20) -> LabelledData:
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(1))
    return LabelledData(x, torch.zeros(n, dtype=torch.int64))


def test_decomposition_equals_the_definition() -> None:
    logits = torch.randn(7, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_p = (3 * logits).log_softmax(-1)
    found = uncertainty.decompose(log_p)
    for part, expected in zip(found[1:], naive(log_p.exp().numpy())):
        np.testing.assert_allclose(part.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(found.log_p.exp().numpy(), log_p.exp().mean(0).numpy(), rtol=1e-12)


def test_members_that_agree_have_no_epistemic_part() -> None:
    log_p = torch.randn(1, 6, 4).log_softmax(-1).expand(5, -1, -1)
    found = uncertainty.decompose(log_p)
    assert float(found.epistemic.max()) < 1e-6
    torch.testing.assert_close(found.total, found.aleatoric)


def test_impossible_classes_are_finite() -> None:
    log_p = torch.tensor([[[0.0, -torch.inf]], [[0.0, -torch.inf]]])
    found = uncertainty.decompose(log_p)
    assert [float(part) for part in found[1:]] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("head", [heads.Point, heads.Diagonal])
def test_dropout_alone_is_on_and_modes_are_put_back(head: type[heads.Head]) -> None:
    model = model_of(head).train()
    statistics = model.backbone.norm.running_mean.clone()
    state = torch.get_rng_state()
    found = uncertainty.mc_dropout(model, examples(), passes=5, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.backbone.norm.running_mean, statistics)
    assert all(module.training for module in model.modules())
    assert float(found.epistemic.min()) > 0
    torch.testing.assert_close(found.total, found.aleatoric + found.epistemic)
    again = uncertainty.mc_dropout(model, examples(), passes=5, seed=3)
    other = uncertainty.mc_dropout(model, examples(), passes=5, seed=4)
    assert torch.equal(found.epistemic, again.epistemic)
    assert not torch.equal(found.epistemic, other.epistemic)


class Sequence(nn.Module):
    """Layers of torch that read features as a sequence (N, 4, 8), with a batch norm beside them."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.norm = layer, nn.BatchNorm1d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.view(-1, 4, 8)
        found = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return self.norm((found[0] if isinstance(found, tuple) else found).flatten(1))


def encoder(p: float, layers: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=p, batch_first=True)
    return nn.TransformerEncoder(layer, layers) if layers > 1 else layer


@pytest.mark.parametrize(
    "make",
    [
        lambda p: encoder(p, 1),
        lambda p: encoder(p, 2),
        lambda p: nn.MultiheadAttention(8, 2, dropout=p, batch_first=True),
        lambda p: nn.LSTM(8, 8, num_layers=2, dropout=p, batch_first=True),
    ],
    ids=["encoder layer", "encoder", "attention", "lstm"],
)
def test_layers_that_hold_their_dropout_as_a_number(make) -> None:
    """The same predictions as in training mode by hand, where only the batch norm is kept from it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, quiet = (Model(Sequence(make(p)), heads.Point(32, 3)) for p in (0.5, 0.0))
    x = torch.randn(6, 32, generator=torch.Generator().manual_seed(2))
    data = LabelledData(x, torch.zeros(6, dtype=torch.int64))
    model.eval()
    model.backbone.norm.train()
    modes = [module.training for module in model.modules()]
    found = uncertainty.mc_dropout(model, data, passes=4, seed=1)
    assert [module.training for module in model.modules()] == modes
    model.train()
    model.backbone.norm.eval()
    members = []
    for i in range(4):
        with torch.no_grad(), forked(1, i + 1, 0, x.device):
            members.append(model(x))
    total, _, epistemic = naive(torch.stack(members).exp().double().numpy())
    np.testing.assert_allclose(found.epistemic.numpy(), epistemic, atol=1e-5)
    np.testing.assert_allclose(found.total.numpy(), total, atol=1e-5)
    assert float(found.epistemic.mean()) > 1e-4
    with pytest.raises(DubitoError, match="no dropout layer"):
        uncertainty.mc_dropout(quiet, data)


def test_one_recurrent_layer_has_nothing_to_drop() -> None:
    with pytest.warns(UserWarning, match="num_layers"):
        layer = nn.LSTM(8, 8, dropout=0.5, batch_first=True)
    with pytest.raises(DubitoError, match="no dropout layer"):
        uncertainty.mc_dropout(Model(Sequence(layer), heads.Point(32, 3)), examples())


def test_sampled_noise_is_shared_by_the_members() -> None:
    """An ensemble of one model with itself disagrees on nothing, even where its integral is sampled."""
    model = model_of(heads.Diagonal, integration="mc", samples=50)
    found = uncertainty.ensemble([model, model], examples())
    assert float(found.epistemic.max()) < 1e-6


def test_noise_of_the_logits_is_aleatoric() -> None:
    model = model_of(heads.Diagonal)
    quiet = uncertainty.ensemble([model, model], examples())
    with torch.no_grad():
        model.head.scale.bias.fill_(6.0)
    noisy = uncertainty.ensemble([model, model], examples())
    assert bool((noisy.aleatoric > quiet.aleatoric).all())


def test_ensemble_disagrees_more_far_from_the_data() -> None:
    from dubito.backbones import MLP
    from dubito.compose import train_method

    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    data = LabelledData(x, (x[:, 0] > 0).long())
    models = [
        train_method(
            "het:integration=mc,samples=20",
            {},
            lambda source: MLP(2, (16,), generator=source),
            data,
            seed=seed,
            epochs=10,
            batch_size=50,
            progress=False,
            device="cpu",
        ).model
        for seed in range(4)
    ]
    near, far = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 8.0]])
    found = uncertainty.ensemble(models, LabelledData(torch.cat([near, far]), torch.tensor([0, 0])))
    assert float(found.epistemic[1]) > float(found.epistemic[0])


def test_refusals() -> None:
    with pytest.raises(DubitoError, match="no dropout layer"):
        uncertainty.mc_dropout(model_of(p=0.0), examples())
    with pytest.raises(DubitoError, match="several passes"):
        uncertainty.mc_dropout(model_of(), examples(), passes=1)
    with pytest.raises(DubitoError, match="needs members"):
        uncertainty.ensemble([model_of()], examples())
    other = Model(nn.Identity(), heads.Point(4, 7))
    with pytest.raises(DubitoError, match="different classes"):
        uncertainty.ensemble([model_of(), other], examples())
    with pytest.raises(DubitoError, match="predictions of members"):
        uncertainty.decompose(torch.zeros(4))


def test_members_of_an_ensemble_drop_nothing_and_every_pass_drops_something() -> None:
    """Ensembles see the networks as they are; each of two or more passes has a mask of its own."""
    models, data = [model_of(seed=s) for s in (0, 1)], examples(6)
    for model in models:
        model.eval()
    with torch.no_grad():
        plain = torch.stack([model.log_probs(model.latent(data.inputs)) for model in models])
    torch.testing.assert_close(uncertainty.ensemble(models, data).log_p, plain.exp().mean(0).log())
    masks = [uncertainty._log_probs(models[0], data, 0, i, 1024) for i in range(4)]
    torch.testing.assert_close(masks[0], plain[0])
    for passes in (2, 3):
        found = uncertainty.mc_dropout(models[0], data, passes=passes)
        wanted = uncertainty.decompose(torch.stack(masks[1 : 1 + passes]))
        torch.testing.assert_close(found.log_p, wanted.log_p)
    for few in (1, 0):
        with pytest.raises(DubitoError, match="several passes"):
            uncertainty.mc_dropout(models[0], data, passes=few)


def test_shapes_of_members() -> None:
    """(M, K) is one example; one axis, or no member, is refused."""
    one = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    found = uncertainty.decompose(one)
    assert found.total.shape == ()
    mean = [0.7, 0.3]
    assert float(found.total) == pytest.approx(-sum(p * math.log(p) for p in mean), rel=1e-5)
    for wrong in (one[0], one[:0]):
        with pytest.raises(DubitoError, match="members"):
            uncertainty.decompose(wrong)


def test_what_is_no_distribution_is_refused() -> None:
    logits = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))
    for wrong in (logits, logits.softmax(-1), logits.log_softmax(1), torch.full_like(logits, -torch.inf)):
        with pytest.raises(DubitoError, match=r"do not sum to 1 .*log_softmax\(logits\)"):
            uncertainty.decompose(wrong)
    log_p = logits.log_softmax(-1)
    log_p[1, 2, 3] = torch.nan
    with pytest.raises(DubitoError, match=r"not a number at log_p\[1, 2, 3\]"):
        uncertainty.decompose(log_p)
    half = uncertainty.decompose(logits.log_softmax(-1).bfloat16())
    torch.testing.assert_close(
        half.total, uncertainty.decompose(logits.log_softmax(-1)).total, atol=0.02, rtol=0
    )


def test_no_examples_have_no_uncertainty() -> None:
    found = uncertainty.mc_dropout(model_of(), examples(3).subset([]), passes=2)
    assert found.log_p.shape == (0, 4)
    assert all(part.shape == (0,) for part in found[1:])
