"""Statements about formulas, computed in float64 on small examples. torch is imported when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def logistic_normal_formulas() -> bool:
    """Englesson et al.: gradients by automatic differentiation, target logits by the inverse, class symmetry."""
    import torch
    from torch.func import jacrev

    g = torch.Generator().manual_seed(0)
    r = torch.randn(4, generator=g, dtype=torch.float64)
    root = torch.randn(4, 4, generator=g, dtype=torch.float64)
    Sigma = root @ root.T + torch.eye(4, dtype=torch.float64)

    def half(mu: torch.Tensor) -> torch.Tensor:  # (5) for y = r, mu near 0
        d = r - mu
        term: torch.Tensor = 0.5 * (d @ torch.linalg.solve(Sigma, d))
        return term

    six = jacrev(half)(torch.zeros(4, dtype=torch.float64)) + torch.linalg.solve(Sigma, r)

    def twice(S: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = r @ torch.linalg.solve(S, r) + torch.logdet(S)
        return total

    inverse = torch.linalg.inv(Sigma)
    seventeen = jacrev(twice)(Sigma) - (inverse - inverse @ torch.outer(r, r) @ inverse)
    noise = torch.randn(64, 3, generator=g, dtype=torch.float64)

    def het(mu: torch.Tensor) -> torch.Tensor:  # (13) with samples
        return -torch.log(torch.softmax(mu + noise, -1).mean(0)[0])

    mu = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    p = torch.softmax(mu + noise, -1)
    weights = p[:, :1] / p[:, :1].sum()
    fourteen = jacrev(het)(mu) + torch.tensor([1.0, 0, 0], dtype=torch.float64) - (weights * p).sum(0)
    s2, r2 = torch.tensor(0.7, dtype=torch.float64), 1.3
    two = jacrev(lambda v: 0.5 * (r2 / v + torch.log(v)))(s2) - (s2 - r2) / (2 * s2**2)
    K, t = 4, 0.01
    target = torch.full((K, K), t / K, dtype=torch.float64) + (1 - t) * torch.eye(K, dtype=torch.float64)
    logits = torch.log(target[:, :-1] / target[:, -1:])
    C = torch.log(torch.tensor(((1 - t) * K + t) / t, dtype=torch.float64))
    expected = torch.cat(
        [C * torch.eye(K - 1, dtype=torch.float64), -C * torch.ones(1, K - 1, dtype=torch.float64)]
    )
    # A dummy class as reference: the target logits of the real classes differ by a permutation only.
    alike = logits[:-1].sort(-1).values - logits[0].sort(-1).values
    errors = (six, seventeen, fourteen, two, logits - expected, alike)
    return max(float(e.abs().max()) for e in errors) < 1e-10


def smearing_formulas() -> bool:
    """Lukasik et al.: unbiasedness of (4), argmax under smoothing, (8) least at zero."""
    import torch

    g = torch.Generator().manual_seed(0)
    f = torch.randn(6, generator=g, dtype=torch.float64)
    losses = -torch.log_softmax(f, -1)
    T = torch.softmax(torch.randn(6, 6, generator=g, dtype=torch.float64) + 3 * torch.eye(6), -1)
    unbiased = float((T @ torch.linalg.solve(T, losses) - losses).abs().max()) < 1e-10
    p = torch.softmax(f, -1)
    keeps = all(int(((1 - a) * p + a / 6).argmax()) == int(p.argmax()) for a in (0.1, 0.5, 0.99))
    x = torch.randn(50, 3, generator=g, dtype=torch.float64)

    def omega(W: torch.Tensor) -> torch.Tensor:
        z = x @ W.T
        return (6 * torch.logsumexp(z, -1) - z.sum(-1)).mean()

    W = torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(omega(W), W)
    lowest = float(omega(W.detach()))
    draws = [torch.randn(6, 3, generator=g, dtype=torch.float64) for _ in range(20)]
    return (
        unbiased
        and keeps
        and float(gradient.abs().max()) < 1e-10
        and all(float(omega(w)) >= lowest for w in draws)
    )


def confusion_formulas() -> bool:
    """Tanno et al.: the start of listing 2, and lemma 1 on random dominant matrices."""
    import torch
    from torch.nn.functional import softplus

    start = softplus(6 * torch.eye(10, dtype=torch.float64) - 5)
    start = start / start.sum(-1, keepdim=True)
    right = abs(float(start[0, 0]) - 0.956) < 5e-4 and float((start.sum(-1) - 1).abs().max()) < 1e-12
    g = torch.Generator().manual_seed(0)
    tried = 0
    for _ in range(200):
        # A[true, observed] = P[true, guess] A_hat[guess, observed], both dominant by column.
        estimate = _rows(torch.rand(5, 5, generator=g, dtype=torch.float64) + 2 * torch.eye(5))
        mixing = _rows(torch.rand(5, 5, generator=g, dtype=torch.float64) + 3 * torch.eye(5))
        true = mixing @ estimate
        if _is_dominant(true) and _is_dominant(estimate):
            tried += 1
            right &= float(true.trace()) <= float(estimate.trace()) + 1e-12
    return bool(right and tried > 20)


def _rows(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(-1, keepdim=True)


def _is_dominant(matrix: Tensor) -> bool:
    off = matrix.clone()
    off.fill_diagonal_(-1.0)
    return bool((matrix.diagonal() > off.amax(0)).all())
