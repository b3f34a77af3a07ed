"""The expected softmax of a Gaussian latent: exact, quasi-random or sampled.

`expected_softmax_nll` is the likelihood of an observed class, `expected_log_softmax` gives all classes at once, and
`sampled_log_softmax` averages over given noise. A map of the other modules:

    gumbel_normal, table, grid    the distribution F of a Gaussian plus a Gumbel variable: exact, and tabulated
    rows, search, scan            a row standardised; where its integrand is large
    likelihood, rapid             the integral of one class over nodes placed there, with its gradient and error
    quadrature                    refines rows until they reach the tolerance
    fixed                         the same integral with a fixed amount of work, for vmap and CUDA graphs
    two_classes, binary           two classes, which are one-dimensional
    all_classes, panels, quick    all classes over one set of nodes
    factors, climb, held          a rule over low-rank factors around the integral
    noise, sampled, sampling      Monte Carlo and quasi-Monte Carlo
    fused*, triton_*              the same on a GPU
"""

from __future__ import annotations

from .binary import expected_log_sigmoid, expected_sigmoid
from .expected import expected_log_softmax
from .nll import expected_softmax_nll
from .report import Report
from .sampled import sampled_log_softmax
from .temperature import BoundedTemperature
from .variance import predictive_variance, sampled_variance

__all__ = [
    "BoundedTemperature",
    "Report",
    "expected_log_sigmoid",
    "expected_log_softmax",
    "expected_sigmoid",
    "expected_softmax_nll",
    "predictive_variance",
    "sampled_log_softmax",
    "sampled_variance",
]
