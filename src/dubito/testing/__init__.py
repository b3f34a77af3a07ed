"""Contracts that can be run: on the stages of this library, and on a user's own."""

from .losses import check_loss

__all__ = ["check_loss"]
