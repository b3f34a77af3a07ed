"""The expected softmax of a Gaussian latent: exact, quasi-random or sampled."""

from __future__ import annotations

from .expected import expected_log_softmax
from .sampled import sampled_log_softmax
from .temperature import BoundedTemperature

__all__ = ["BoundedTemperature", "expected_log_softmax", "sampled_log_softmax"]
