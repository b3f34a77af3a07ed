"""Equations of the public formulas, written out for one example on lists, with little more than `math`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dubito.heads import Latent
from dubito.integrals.noise import fresh_seed, sobol_bank

ROWS, K, R, D = 5, 4, 3, 6
LABELS = [0, 3, 1, 2, 2]
PEOPLE = [2, 0, 1, 1, 0]
List = list[Any]


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax(z: List, tau: float = 1.0) -> list[float]:
    e = [math.exp(v / tau) for v in z]
    return [v / math.fsum(e) for v in e]


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def times(p: List, T: List) -> list[float]:
    return [math.fsum(p[i] * T[i][j] for i in range(len(p))) for j in range(len(T[0]))]


def each(one: Callable[..., Any]) -> Callable[..., List]:
    """A transcription of one row, row by row; the label of a row comes last."""
    return lambda *inputs: [one(*row, LABELS[n]) for n, row in enumerate(zip(*inputs))]


def bisect(above: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return (low + high) / 2


def log_t(x: float, t: float) -> float:
    return (x ** (1 - t) - 1) / (1 - t)


def tempered(a: List, t: float) -> list[float]:
    """exp_t(a - lambda) with the lambda at which it sums to one, for t > 1."""

    def values(shift: float) -> list[float]:
        return [(1 + (1 - t) * (v - shift)) ** (1 / (1 - t)) for v in a]

    return values(bisect(lambda shift: math.fsum(values(shift)) > 1, max(a), max(a) + 100))


def bi_tempered(z: List, y: int) -> float:
    t1, t2 = 0.8, 1.2
    p = tempered(z, t2)
    terms = [-log_t(p[y], t1)]  # log_t of one is zero
    terms += [(v ** (2 - t1) - (k == y)) / (2 - t1) for k, v in enumerate(p)]
    return math.fsum(terms)


def truncated(z: List, y: int) -> float:
    p = softmax(z)[y]
    return (1 - 0.3**0.7) / 0.7 if p <= 0.3 else (1 - p**0.7) / 0.7


def logistic_normal(mean: List, c: List, y: int) -> float:
    """1/2 r' S^-1 r + 1/2 log det S with S^(1/2) = c c' + lam I, by Gaussian elimination."""
    lam, t, n = 0.5, 0.01, len(mean)
    s = [(1 - t) * (k == y) + t / (n + 1) for k in range(n + 1)]
    r = [math.log(s[k] / s[n]) - mean[k] for k in range(n)]
    half = [[c[i] * c[j] + lam * (i == j) for j in range(n)] for i in range(n)]
    S = [[math.fsum(half[i][k] * half[j][k] for k in range(n)) for j in range(n)] for i in range(n)]
    x, log_det = solve(S, r)
    return 0.5 * math.fsum(a * b for a, b in zip(r, x)) + 0.5 * log_det


def solve(A: List, b: List) -> tuple[list[float], float]:
    """A^-1 b and log |det A|, with pivots."""
    n, rows = len(b), [[*row, v] for row, v in zip(A, b)]
    log_det = 0.0
    for i in range(n):
        best = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[best] = rows[best], rows[i]
        log_det += math.log(abs(rows[i][i]))
        for k in range(i + 1, n):
            f = rows[k][i] / rows[i][i]
            rows[k] = [x - f * y for x, y in zip(rows[k], rows[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - math.fsum(rows[i][j] * x[j] for j in range(i + 1, n))) / rows[i][i]
    return x, log_det


def distillation(student: List, teacher: List, y: int) -> float:
    q = [0.9 * v + 0.1 / K for v in softmax(teacher, 2.0)]
    return -math.fsum(a * math.log(b) for a, b in zip(q, times(softmax(student, 2.0), MATRIX.tolist())))


def expected(mean: List, scale: List) -> list[float]:
    """E softmax(mean + scale e) of three classes by a product of Gauss-Hermite rules."""
    x, w = np.polynomial.hermite_e.hermegauss(70)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1)
    weight = np.einsum("i,j,k->ijk", w, w, w) / (2 * math.pi) ** 1.5
    u = np.exp(np.asarray(mean) + np.asarray(scale) * grid)
    return [float(v) for v in np.einsum("ijk,ijkc->c", weight, u / u.sum(-1, keepdims=True))]


def expected_sigmoid(mean: List, scale: List) -> list[float]:
    x, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / math.sqrt(2 * math.pi)
    return [float(w @ (1 / (1 + np.exp(-(m + s * x) / 1.5)))) for m, s in zip(mean, scale)]


def draws(mean: List, scale: List, noise: List) -> list[list[list[float]]]:
    """softmax(mean + scale noise^s) / 0.7) of every row and draw."""
    return [
        [softmax([m + d * e for m, d, e in zip(mean[n], scale[n], one[n])], 0.7) for one in noise]
        for n in range(len(mean))
    ]


def averages(found: List) -> List:
    return [[math.fsum(p[k] for p in row) / len(row) for k in range(len(row[0]))] for row in found]


def sampled(mean: List, scale: List, noise: List) -> List:
    return [[math.log(v) for v in row] for row in averages(draws(mean, scale, noise))]


def variance(mean: List, scale: List) -> List:
    bank = BANK.tolist()
    found = draws(mean, scale, [[one] * len(mean) for one in bank])
    centre = averages(found)
    return averages([[[(v - c) ** 2 for v, c in zip(p, m)] for p in row] for row, m in zip(found, centre)])


def affine(layer: nn.Linear, h: List) -> list[float]:
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    return [math.fsum(a * b for a, b in zip(row, h)) + c for row, c in zip(weight, bias)]


def scales(layer: nn.Linear, h: List) -> list[float]:
    return [softplus(v) + 1e-3 for v in affine(layer, h)]


def joined(latent: Latent) -> Tensor:
    return torch.cat([part.flatten(1) for part in latent if part is not None], -1)


def low_rank(head: Any) -> Callable[[List], List]:
    def one(h: List) -> list[float]:
        return [*affine(head.mean, h), *scales(head.scale, h), *affine(head.factors, h)]

    return lambda x: [one(h) for h in x]


def pre_logit(head: Any) -> Callable[[List], List]:
    """mean = W h + b; scale 0; factors = W [V(h), diag(d(h))]."""

    def one(h: List) -> list[float]:
        W, V = head.mean.weight.tolist(), affine(head.factors, h)
        d = scales(head.scale, h)
        factors = [
            [math.fsum(row[i] * V[2 * i + r] for i in range(D)) for r in range(2)]
            + [row[i] * d[i] for i in range(D)]
            for row in W
        ]
        return [*affine(head.mean, h), *[0.0] * K, *(v for row in factors for v in row)]

    return lambda x: [one(h) for h in x]


def confusion(row: List) -> list[float]:
    e = [softplus(v) for v in row]
    return [v / math.fsum(e) for v in e]


def pooled(channel: Any, r: int) -> List:
    skill, ease, pool = channel.skill.tolist()[r], channel.ease.tolist(), channel.pool.tolist()
    A = []
    for i in range(K):
        d = 1 / (1 + math.exp(-(skill + ease[i])))
        others = math.fsum(math.exp(pool[i][j]) for j in range(K) if j != i)
        A.append([d if i == j else (1 - d) * math.exp(pool[i][j]) / others for j in range(K)])
    return A


def through(matrix: Callable[[int], List]) -> Callable[[List], List]:
    """log q of each row of log p, with the matrix of its annotator."""
    return lambda log_p: [
        [math.log(v) for v in times([math.exp(u) for u in row], matrix(PEOPLE[n]))]
        for n, row in enumerate(log_p)
    ]


def shaken(module: Any) -> Any:
    """In float64 and away from its start."""
    module = module.double()
    with torch.no_grad():
        for n, p in enumerate(module.parameters()):
            p.add_(0.5 * tensor(*p.shape, seed=n + 3))
    return module


Z, TEACHER, H = 2 * tensor(ROWS, K), tensor(ROWS, K, seed=1), tensor(ROWS, D, seed=2)
LOG_P, Y, WHO = Z.log_softmax(-1), torch.tensor(LABELS), torch.tensor(PEOPLE)
MATRIX = tensor(K, K, seed=7).softmax(-1)
MEAN, SCALE = tensor(ROWS, 3, seed=4), 0.3 + tensor(ROWS, 3, seed=5).sigmoid()
SIDE = torch.tensor([0, 2, 1, 0, 2])
NOISE = tensor(20, ROWS, 3, seed=6)
BANK = sobol_bank(
    64, 3, 0, fresh_seed(torch.Generator().manual_seed(5)), "normal", MEAN.device, torch.float64
)[0]
