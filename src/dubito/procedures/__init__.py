"""Procedures: what one step minimises, and what happens between epochs.

A procedure is a module that holds the networks it trains and any state that belongs to them, so that one
checkpoint of its state dict resumes it. Before training the loop calls ``procedure.begin(data)`` once, before an
epoch ``procedure.begin_epoch(epoch, data)``, and ``procedure(batch, draw)`` for the loss of a step;
`procedure.model` is what is evaluated. The loop also keeps `procedure.epoch` and `procedure.best` up to date.
"""

from .chosen import CoTeaching, SelfPaced, fresh
from .distillation import Distillation, Teacher
from .plain import Draw, Plain, Target, mean_of_given
from .pruning import Pruning

__all__ = [
    "CoTeaching",
    "Distillation",
    "Draw",
    "Plain",
    "Pruning",
    "SelfPaced",
    "Target",
    "Teacher",
    "fresh",
    "mean_of_given",
]
