"""Procedures: what one step minimises, and what happens between epochs.

A procedure is a module that holds the networks it trains and any state that belongs to them, so that a checkpoint
of its state dict is enough to resume it. The loop (`train.fit`) calls

    procedure.begin(data)                 once, before training
    procedure.begin_epoch(epoch, data)    before each epoch
    procedure(batch, draw)                for the loss of each step
    procedure.end(data)                   once, after the last step

and keeps `procedure.epoch`, `procedure.epochs` and `procedure.best` up to date. `procedure.model` is what is
evaluated. A procedure of several stages sets `procedure.anew` in the first epoch of a stage, which restarts the
choice of the best epoch there, and early stopping skips to the epoch `procedure.later`, if a stage is to come.
"""

from .annotators import SparseAnnotators
from .chosen import CoTeaching, SelfPaced, fresh
from .distillation import Distillation, Teacher
from .doctor import DoctorHeads, DoctorNet
from .em import CrossFittedEM, GeneralisedEM, ModelBootstrappedEM
from .plain import Draw, Plain, Target, Weight, mean_of_given
from .pruning import Pruning

__all__ = [
    "CoTeaching",
    "CrossFittedEM",
    "Distillation",
    "DoctorHeads",
    "DoctorNet",
    "Draw",
    "GeneralisedEM",
    "ModelBootstrappedEM",
    "Plain",
    "Pruning",
    "SelfPaced",
    "SparseAnnotators",
    "Target",
    "Teacher",
    "Weight",
    "fresh",
    "mean_of_given",
]
