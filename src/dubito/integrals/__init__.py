"""The expected softmax of a Gaussian latent: exact, quasi-random or sampled.

Where to look. Each file has its formula at the top.

    expected_softmax_nll: one class       nll, which chooses among
        independent classes                   quadrature
        two classes                           two_classes
        up to three factors                   factors, with climb (where p is large) and held (a check of hard rows)
        the same work for every row           fixed, for torch.vmap and CUDA graphs
        draws                                 sampling
    expected_log_softmax: all classes     expected, which chooses among
        independent classes                   all_classes, by quick (float32) and panels (the rest)
        two classes, one factor               two_classes, one_factor
        draws                                 sampling
    expected_sigmoid                      binary, by two_classes
    predictive_variance                   variance
    sampled_log_softmax                   sampled
    BoundedTemperature                    temperature

What `quadrature` is made of: `gumbel_normal` is the distribution F of a Gaussian plus a Gumbel variable, exactly,
and `table` makes it fast. `rows` standardises a row. A quick rule serves most rows: `rapid`, with its own table
in `grid`, for float32 on a CPU; otherwise `scan` finds where the integrand is large, and `likelihood` sums over
nodes there and has gradient and error. Rows that miss the tolerance are searched again by `search`.

`border` checks what comes in, `report` says what was done, `graphs` keeps both out of compiled graphs, `noise`
makes draws and quasi-random points. On a GPU, `fused*` and `draws` call the kernels in `triton_*`. Nothing here
uses `standalone`: it is a file to copy.
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
