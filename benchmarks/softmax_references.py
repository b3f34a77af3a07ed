"""Reference values of the expected softmax: value and gradients of log p by code that shares nothing with dubito.

    python benchmarks/softmax_references.py --out results/benchmarks/softmax_references.jsonl

NumPy and SciPy only. F and f of a Gaussian plus a Gumbel variable are trapezoid rules of 801 nodes between the
places where their own integrands have dropped by 42 nats; the outer integral is Gauss-Legendre of 12 nodes on
panels halved until they stand still to 1e-13; gradients are averages of d log F_k (rivals) and of d log f_y. Two
classes come from mpmath instead, as the expected sigmoid of one Gaussian with 30 digits. One line of JSON per row;
means and scales are numbers that bfloat16 holds, so that one reference serves every type.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

Array = NDArray[np.float64]
TAUS = (0.0, 0.01, 0.05, 0.5, 1.0, 5.0, 100.0)
KINDS = ("ordinary", "lognormal", "extreme", "far")
_STEPS = np.linspace(0, 1, 801)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_LOG_ROOT = 0.5 * np.log(2 * np.pi)


def _hazard(z: Array) -> Array:
    found: Array = np.exp(-0.5 * z * z - _LOG_ROOT - log_ndtr(z))
    return found


def _bisect(rising: Any, low: Array, high: Array) -> Array:
    """Where a decreasing slope changes its sign."""
    for _ in range(90):
        middle = (low + high) / 2
        up = rising(middle)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def _ends(log_term: Any, mode: Array) -> tuple[Array, Array]:
    """Where a concave function has dropped by 42 below its mode, on both sides."""
    aim = log_term(mode) - 42
    found = []
    for sign in (-1.0, 1.0):
        inner, outer = np.zeros_like(mode), np.full_like(mode, 1e-6)
        for _ in range(60):
            short = log_term(mode + sign * outer) > aim
            inner, outer = np.where(short, outer, inner), np.where(short, 2 * outer, outer)
            if not short.any():
                break
        for _ in range(12):
            middle = (inner + outer) / 2
            short = log_term(mode + sign * middle) > aim
            inner, outer = np.where(short, middle, inner), np.where(short, outer, middle)
        found.append(mode + sign * outer)
    return found[0], found[1]


def _inner(d: Array, s: float, tau: float, density: bool) -> tuple[Array, Array, Array, Array]:
    """Log of F, or of f, at d, and its derivatives in d, s and tau; s and tau positive."""
    over_gumbel, lean = s >= tau, 1.0 if density else 0.0

    def of_gumbel(g: Array, d: Array = d) -> Array:
        z = (d - tau * g) / s
        first = -0.5 * z * z - _LOG_ROOT - np.log(s) if density else log_ndtr(z)
        value: Array = first - g - np.exp(np.minimum(-g, 700))
        return value

    def of_normal(e: Array, d: Array = d) -> Array:
        a = (d - s * e) / tau
        value: Array = -np.exp(np.minimum(-a, 700)) - 0.5 * e * e - _LOG_ROOT - lean * (a + np.log(tau))
        return value

    def rising(x: Array) -> Any:
        if not over_gumbel:
            return s / tau * (lean - np.exp(np.minimum((s * x - d) / tau, 700))) > x
        z = (d - tau * x) / s
        return tau / s * (z if density else -_hazard(z)) - 1 + np.exp(np.minimum(-x, 700)) > 0

    reach = 1e3 + np.abs(d) / tau + np.abs(d) / s
    mode = _bisect(rising, -reach, reach)
    log_term = of_gumbel if over_gumbel else of_normal
    low, high = _ends(log_term, mode)
    x = low[:, None] + (high - low)[:, None] * _STEPS
    terms = log_term(x, d[:, None]) + np.log((high - low) * _STEPS[1])[:, None]
    total = logsumexp(terms, axis=1)
    weight = np.exp(terms - total[:, None])
    if over_gumbel:
        z = (d[:, None] - tau * x) / s
        rate = -z / s if density else _hazard(z) / s
        in_s, in_tau = (z * z - 1) / s if density else -z * rate, -rate * x
    else:
        a = (d[:, None] - s * x) / tau
        rate = (np.exp(np.minimum(-a, 700)) - lean) / tau
        in_s, in_tau = -rate * x, -(rate * a + lean / tau)
    return total, (weight * rate).sum(1), (weight * in_s).sum(1), (weight * in_tau).sum(1)


def _law(d: Array, s: float, tau: float, density: bool) -> tuple[Array, Array, Array, Array]:
    """As `_inner`, with the limits of a pure Gaussian and a pure Gumbel variable."""
    if tau == 0:
        z = d / s
        if density:
            return -0.5 * z * z - _LOG_ROOT - np.log(s), -z / s, (z * z - 1) / s, 0 * z
        return log_ndtr(z), _hazard(z) / s, -z * _hazard(z) / s, 0 * z
    if s == 0:
        a = d / tau
        v = np.exp(np.minimum(-a, 700))
        if density:
            return -a - v - np.log(tau), (v - 1) / tau, 0 * v, (a * (1 - v) - 1) / tau
        return -v, v / tau, 0 * v, -v * a / tau
    pieces = [_inner(d[i : i + 256], s, tau, density) for i in range(0, len(d), 256)]
    a, b, c, e = (np.concatenate(column) for column in zip(*pieces))
    return a, b, c, e


def _log_integrand(t: Array, mean: Array, scale: Array, tau: float, target: int) -> Array:
    total = np.zeros_like(t)
    for k, (m, s) in enumerate(zip(mean, scale)):
        total += _law(t - m, s, tau, k == target)[0]
    return total


def _panels(mean: Array, scale: Array, tau: float, target: int) -> tuple[Array, Array, float]:
    """Nodes, logarithms of weight times integrand below its maximum, and that maximum."""
    width = np.sqrt(scale**2 + 1.65 * tau**2)
    low = -13 * width[target]
    high = float((mean + 9 * width).max()) + 60 * width[target]
    for _ in range(90):
        t = np.linspace(low, high, 41)
        value = _log_integrand(t, mean, scale, tau, target)
        inside = np.flatnonzero(value > value.max() - 42)
        low, high = t[max(inside[0] - 1, 0)], t[min(inside[-1] + 1, 40)]
        if len(inside) > 16:
            break
    top = float(value.max())

    def sums(left: Array, right: Array) -> tuple[Array, Array]:
        t = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * _NODES
        value = _log_integrand(t.ravel(), mean, scale, tau, target).reshape(t.shape)
        return t, value + np.log((right - left)[:, None] / 2 * _WEIGHTS) - top

    edges = np.linspace(low, high, 17)
    left, right = edges[:-1], edges[1:]
    before = np.exp(sums(left, right)[1]).sum(1)
    nodes: list[Array] = []
    values: list[Array] = []
    for _ in range(45):
        middle = (left + right) / 2
        left, right = np.stack([left, middle], 1).ravel(), np.stack([middle, right], 1).ravel()
        t, value = sums(left, right)
        each = np.exp(value).sum(1)
        both = each.reshape(-1, 2).sum(1)
        total = float(each.sum()) + sum(float(np.exp(v).sum()) for v in values)
        hidden = np.zeros(len(both), bool)  # a class much narrower than the panel it lies in
        for m, w in zip(mean, width):
            hidden |= (m + 4 * w > left[::2]) & (m - 3 * w < right[1::2]) & (right[1::2] - left[::2] > 4 * w)
        bad = (np.abs(both - before) > 1e-13 * total) | (hidden & (both > 1e-15 * total))
        again = np.repeat(bad, 2)
        nodes.append(t[~again].ravel())
        values.append(value[~again].ravel())
        if not bad.any():
            break
        left, right, before = left[again], right[again], each[again]
    return np.concatenate(nodes), np.concatenate(values), top


def by_panels(
    mean: Array, scale: Array, tau: float, target: int
) -> tuple[float, list[float], list[float], float]:
    """log p of the target and its gradients in means, scales and tau."""
    mean = mean - mean[target]
    t, value, top = _panels(mean, scale, tau, target)
    log_p = float(logsumexp(value))
    weight = np.exp(value - log_p)
    t, weight = t[weight > 1e-22], weight[weight > 1e-22]
    d_mean, d_scale, d_tau = [], [], 0.0
    for k, (m, s) in enumerate(zip(mean, scale)):
        _, in_t, in_s, in_tau = _law(t - m, s, tau, k == target)
        d_mean.append(-float((weight * in_t).sum()))
        d_scale.append(float((weight * in_s).sum()))
        d_tau += float((weight * in_tau).sum())
    return log_p + top, d_mean, d_scale, d_tau


def by_mpmath(
    mean: Array, scale: Array, tau: float, target: int
) -> tuple[float, list[float], list[float], float]:
    """Two classes: log E[sigmoid((m + s e) / tau)] and its gradients."""
    with mp.workdps(30):
        m, s, t = (
            mp.mpf(mean[target] - mean[1 - target]),
            mp.sqrt(sum(mp.mpf(x) ** 2 for x in scale)),
            mp.mpf(tau),
        )
        if tau == 0:
            tail = mp.ncdf(-abs(m) / s)
            slope, bend, heat = (
                mp.npdf(m / s) / s / tail,
                abs(m) * mp.npdf(m / s) / s**3 / tail,
                mp.mpf(0),
            )
            log_small = mp.log(tail)
        else:
            log_small, slope, bend, heat = small(abs(m), s, t)
        share = mp.mpf(1)
        if m > 0:
            log_small, share = mp.log1p(-mp.exp(log_small)), -mp.exp(log_small) / (1 - mp.exp(log_small))
        own = float(abs(share) * slope)
        d_mean = [own, -own] if target == 0 else [-own, own]
        return float(log_small), d_mean, [float(share * bend * mp.mpf(x)) for x in scale], float(share * heat)


def small(b: Any, s: Any, t: Any) -> tuple[Any, Any, Any, Any]:
    """log E[sigmoid((s e - b) / t)], and of it the derivatives by -b, by s over s, and by t."""
    if s == 0:
        p = 1 / (1 + mp.exp(b / t))
        return mp.log(p), (1 - p) / t, (1 - p) * (1 - 2 * p) / t**2, b / t**2 * (1 - p)
    low, high = mp.mpf(0), s / t + 1
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if s / t / (1 + mp.exp((s * middle - b) / t)) > middle else (low, middle)
    top = -low * low / 2 - mp.log1p(mp.exp((b - s * low) / t))
    edges = {low + k for k in (-12, -7, -4, -2, -1, 0, 1, 2, 4, 7, 12)}
    edges |= {
        x for x in (b / s + k * t / s for k in (-40, -15, -5, -2, 0, 2, 5, 15, 40)) if abs(x - low) < 12
    }

    def average(f: Any) -> Any:
        def term(e: Any) -> Any:
            u = (b - s * e) / t
            return mp.exp(-e * e / 2 - mp.log1p(mp.exp(u)) - top) * f(u)

        return mp.quad(term, sorted(edges), maxdegree=6)

    total = average(lambda u: mp.mpf(1))
    slope = average(lambda u: 1 / (1 + mp.exp(-u))) / total
    bend = average(lambda u: mp.tanh(u / 2) / (1 + mp.exp(-u))) / total
    heat = average(lambda u: u / (1 + mp.exp(-u))) / total
    return mp.log(total) + top - mp.log(2 * mp.pi) / 2, slope / t, bend / t**2, heat / t


def made(kind: str, classes: int, tau: float, g: np.random.Generator) -> tuple[Array, Array, int]:
    """Means, scales and a target that bfloat16 holds; without temperature no scale is 0."""
    mean = np.clip(np.round(32 * g.normal(size=classes)) / 16, -15, 15)
    scale = np.log1p(np.exp(g.normal(size=classes)))
    if kind == "lognormal":
        scale = np.exp(1.7 * g.normal(size=classes) - 0.5)
    elif kind == "extreme":
        scale = g.choice([0.0, 1e-3, 0.01, 0.1, 1.0, 10.0, 50.0], size=classes)
    elif kind == "far":
        mean = np.round(np.clip(8 * mean, -200, 200))
    scale = np.clip(scale, 1e-3 if tau == 0 else 0.0, 50.0)
    bits = (scale.astype(np.float32).view(np.uint32) + np.uint32(0x8000)) & np.uint32(0xFFFF0000)
    rounded: Array = bits.view(np.float32).astype(np.float64)
    return mean, rounded, int(g.integers(classes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--classes", default="2,10,21,100")
    parser.add_argument("--rows", default="12,8,4,2", help="per temperature")
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    args = parser.parse_args()
    began = time.time()
    with args.out.open("a") as f:
        for classes, rows in zip(*([int(x) for x in text.split(",")] for text in (args.classes, args.rows))):
            g = np.random.default_rng(classes)
            for i in range(rows):
                for tau in TAUS:
                    kind = KINDS[i % 4]
                    mean, scale, target = made(kind, classes, tau, g)
                    rule = by_mpmath if classes == 2 else by_panels
                    log_p, d_mean, d_scale, d_tau = rule(mean, scale, tau, target)
                    short = {
                        "d_mean": d_mean,
                        "d_scale": d_scale,
                        "mean": mean.tolist(),
                        "scale": scale.tolist(),
                    }
                    line: dict[str, Any] = {"by": rule.__name__, "kind": kind, "tau": tau, "target": target}
                    line |= {"log_p": log_p, "d_tau": d_tau}
                    line |= {name: [float(f"{x:.12g}") for x in values] for name, values in short.items()}
                    f.write(json.dumps(line) + "\n")
                    f.flush()
                    if time.time() - began > args.limit:
                        return


if __name__ == "__main__":
    main()
