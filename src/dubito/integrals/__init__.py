"""The expected softmax of a Gaussian latent: exact, quasi-random or sampled.

`expected_softmax_nll` is the likelihood of an observed class, `expected_log_softmax` all classes at once, and
`sampled_log_softmax` their pure sampled core. A table of the distribution of a Gaussian plus a Gumbel
variable (`table`, from `gumbel_normal`) carries the quadrature: `search` finds where the integrand lives,
`likelihood` sums it, `quadrature` sees to the tolerance.
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
