"""Contracts that can be run: on the stages of this library, and on a user's own."""

from .channels import check_channel
from .heads import check_head
from .losses import check_loss

__all__ = ["check_channel", "check_head", "check_loss"]
