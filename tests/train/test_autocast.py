"""Under autocast a network may run in half precision; integrals, matrices and losses on its outputs may not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from small import difference, network, problem
from torch import Tensor

from dubito import channels, heads, links, losses, penalties, targets
from dubito.train import fit

g = torch.Generator().manual_seed(0)
mean, scale = 3 * torch.randn(12, 4, generator=g), torch.rand(12, 4, generator=g) + 0.2
factors, label = torch.randn(12, 4, 2, generator=g), torch.randint(0, 4, (12,), generator=g)
noise, factor_noise = torch.randn(5, 12, 4, generator=g), torch.randn(5, 12, 2, generator=g)
T = torch.softmax(torch.randn(4, 4, generator=g) + 3 * torch.eye(4), -1)
people, person = channels.AnnotatorConfusion(3, 4), torch.arange(12) % 3
log_p = mean.log_softmax(-1)
expected = partial(links.expected_log_softmax, mean, scale, samples=64)

CASES: dict[str, Callable[[], Tensor]] = {
    **{f"expected, {m}": partial(expected, method=m) for m in ("auto", "quadrature", "fixed", "qmc")},
    "expected, one factor": partial(expected, factors=factors[..., :1]),
    "expected, two factors": partial(expected, factors=factors, method="qmc"),
    **{
        f"likelihood, {m}": partial(
            links.expected_softmax_nll, mean, scale, label, method=m, reduction="none"
        )
        for m in ("auto", "quadrature", "fixed")
    },
    "sampled": partial(
        links.sampled_log_softmax, mean, scale, noise, factors=factors, factor_noise=factor_noise
    ),
    "variance": partial(links.predictive_variance, mean, scale, factors=factors[..., :1]),
    "sigmoid": partial(links.expected_log_sigmoid, mean[:, 0], scale[:, 0]),
    "smear": partial(targets.smear, log_p.exp(), T),
    "transition": partial(channels.FixedTransition(T), log_p),
    "annotators": partial(people, log_p, person),
    "log det": partial(penalties.log_det, people, weight=1.0),
    "gce": partial(losses.gce, mean, label, reduction="none"),
    "bi-tempered": partial(losses.bi_tempered, mean, label, reduction="none"),
    "logistic-normal": partial(losses.logistic_normal_nll, mean, scale, label, lam=0.5, reduction="none"),
}


@pytest.mark.rel
@pytest.mark.parametrize("name", CASES)
def test_autocast_changes_no_number(name: str) -> None:
    """Scorecard 5: the same values in a region of mixed precision."""
    plain = CASES[name]()
    with torch.autocast("cpu", torch.bfloat16):
        found = CASES[name]()
    assert found.dtype == plain.dtype
    torch.testing.assert_close(found, plain, rtol=1e-6, atol=1e-6)


def test_autocast_is_back_afterwards() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        CASES["smear"]()
        assert torch.is_autocast_enabled("cpu")
        with pytest.raises(ValueError, match="square"):
            targets.smear(label, torch.ones(2, 3))
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("head", "integration"),
    [(heads.Diagonal, "auto"), (heads.Diagonal, "fixed"), (partial(heads.LowRank, rank=1), "auto")],
)
def test_heteroscedastic_training_in_mixed_precision(
    head: Callable[..., heads.Head], integration: str
) -> None:
    runs = [
        fit(
            network(head=head, integration=integration, samples=32),
            problem(24),
            epochs=1,
            batch_size=12,
            amp=amp,
            compile="eager" if amp and integration == "auto" else False,
            progress=False,
            device="cpu",
        )
        for amp in (False, True)
    ]
    assert difference(runs[0].model, runs[1].model) < 2e-2


def test_a_head_runs_in_full_precision() -> None:
    model, x = network(head=heads.LogisticNormal), problem(16).inputs
    with torch.autocast("cpu", torch.bfloat16):
        features = model.backbone(x)
        latent = model.latent(x)
    assert features.dtype == torch.bfloat16
    torch.testing.assert_close(latent.mean, model.head(features.float()).mean)
    half = network().to(torch.bfloat16)  # a model that is half precision throughout stays so
    assert half.latent(x.to(torch.bfloat16)).mean.dtype == torch.float32
