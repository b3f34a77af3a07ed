"""How much of the disagreement between model and labels is noise, and how much is the model's own doubt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .likelihood import Array, Fit, _Problem, clean, posterior

SHARES = (1.0, 0.8, 0.6, 0.4, 0.2, 0.02)
COARSE = 0.03  # see `weigh`
DOUBT = 0.5  # least standard error of the noise rate, over (1 - mean certainty)^2: a rule of thumb from benchmarks
STEPS = 40


@dataclass(frozen=True)
class Weighed:
    """A fit at the mean share s, and the standard error of the noise rate that comes from not knowing s."""

    fit: Fit
    share: float
    error: float


def weigh(x: Array, labels: Array, best: Fit) -> Weighed:
    """Average over explanations of the labels that are almost as good as the best one.

        ``T_s = I + s (T - I)``,   calibration refitted for each s,   weight_s ~ exp((l_s - l_max) / d)

    with l the log-likelihood per label. A model that knows its classes leaves no doubt about s: without noise in
    T the labels are far less likely. To a weak model hard items explain them almost as well, the likelihood is
    flat, and its maximum leans to the noisy end, since a matrix also mends what the calibration cannot express.
    So differences below ``d = COARSE (1 - mean certainty)^2`` nats per label do not count as evidence. COARSE was
    set on digits, MNIST and SVHN with features of all qualities.
    """
    fits, values, rates = [], [], []
    now = best
    for s in SHARES:
        now = best if s == 1 else settle(x, labels, shrink(now, best.T, s))
        q, total = posterior(clean(now, x), now.T, labels)
        fits.append(now)
        values.append(float(total.mean()))
        rates.append(float(1 - q[np.arange(len(labels)), labels].mean()))
    doubt = 1 - float(np.exp(clean(best, x).max(1)).mean())
    weight = np.exp((np.array(values) - max(values)) / max(COARSE * doubt**2, 1e-9))
    weight /= weight.sum()
    share = float(weight @ np.array(SHARES))
    near = fits[int(np.abs(np.array(SHARES) - share).argmin())]
    mean = float(weight @ np.array(rates))
    error = float(weight @ (np.array(rates) - mean) ** 2) ** 0.5
    return Weighed(settle(x, labels, shrink(near, best.T, share)), share, max(error, DOUBT * doubt**2))


def shrink(fit: Fit, T: Array, share: float) -> Fit:
    """The fit with only a share of the noise of T."""
    eye = np.eye(len(T))
    return Fit(fit.W, fit.c, np.maximum(eye + share * (T - eye), 1e-12), fit.log_likelihood)


def settle(x: Array, labels: Array, begin: Fit, weights: Array | None = None, steps: int = STEPS) -> Fit:
    """Fit the calibration W, c for a matrix T that stays as it is."""
    from scipy.optimize import minimize

    problem = _Problem(x, labels, begin, weights)
    whole = problem.pack()
    tail = whole[-(len(begin.T) ** 2) :]
    n = len(whole) - len(tail)

    def value(head: Array) -> tuple[float, Array]:
        found, gradient = problem.value(np.concatenate([head, tail]))
        return found, gradient[:n]

    found = minimize(value, whole[:n], jac=True, method="L-BFGS-B", options={"maxiter": steps})
    W, c, _ = problem.unpack(np.concatenate([found.x, tail]))
    _, total = posterior(clean(Fit(W, c, begin.T, 0.0), x), begin.T, labels)
    return Fit(W, c, begin.T, float(total.sum() if weights is None else total @ weights))
