"""Procedures: what one step minimises, and what happens between epochs.

A procedure is a module that holds the networks it trains and any state that belongs to them, so that one
checkpoint of its state dict resumes it. Before training the loop calls ``procedure.begin(data)`` once, before an
epoch ``procedure.begin_epoch(epoch, data)``, ``procedure(batch, draw)`` for the loss of a step, and
``procedure.end(data)`` at the end; `procedure.model` is what is evaluated. The loop also keeps `procedure.epoch`,
`procedure.epochs` and `procedure.best` up to date. Where `procedure.anew` is true the choice of the best epoch
begins anew with the present one. Early stopping leads to epoch `procedure.later`, where there is a stage to come.
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
