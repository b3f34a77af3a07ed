"""Training on the softened outputs of a teacher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .._batches import Batch
from .._files import sha256
from .._identity import raw
from ..channels import FixedTransition
from ..errors import DubitoError
from ..losses import distillation
from ..model import Model
from ..noise import resample
from .plain import Draw, Plain, weighted


@dataclass(frozen=True, init=False)
class Teacher:
    """A trained model as an argument of a run; the run's configuration records the SHA-256 of its weights."""

    sha256: str

    def __init__(self, model: Model) -> None:
        weights = (f"{k} {v.dtype}".encode() + raw(v).tobytes() for k, v in model.state_dict().items())
        object.__setattr__(self, "sha256", sha256(b"".join(weights)))
        object.__setattr__(self, "model", model)


class Distillation(Plain):
    """A student that sees only the softened outputs of a teacher, never a label.

        L = - sum_k q_k log r_k,   q = softmax(teacher / T),   r = softmax(student / T)

    with q smoothed by `smoothing`, or r multiplied by the transition matrix of `correction`. The teacher reads the
    same (augmented) inputs as the student, in evaluation mode. Any model can teach: its log-probabilities are
    softened, which for a plain network is the same as softening its logits.

    Arguments:
        model: the student: a head without scale and no temperature, link or channel, none of which would be read.
        teacher: a trained model, as a `Teacher` where the run has a folder.
        temperature: T, on both sides.
        smoothing: alpha of label smoothing on q.
        correction: alpha of forward correction on r, with the matrix `noise.resample(K, alpha)`.

    Reference:
        lukasik2020 sec. 4.4, table 5
    """

    unread = ("loss", "target", "penalty")

    def __init__(
        self,
        model: Model,
        *,
        teacher: Model | Teacher | str | None = None,
        temperature: float = 2.0,
        smoothing: float = 0.0,
        correction: float = 0.0,
        **stages: Any,
    ) -> None:
        super().__init__(model, **stages)
        _check_student(model)
        teacher = getattr(teacher, "model", teacher)
        if not isinstance(teacher, Model):
            raise DubitoError(
                "distillation needs a teacher",
                expected="a trained model",
                got=repr(teacher),
                remedy="pass teacher=model, or train with compose.train_method",
            )
        # In a tuple, so that the teacher is neither a parameter of this module nor part of its checkpoints.
        self._teacher = (teacher.eval(),)
        self.temperature, self.smoothing = temperature, smoothing
        self._channel = FixedTransition(resample(model.num_classes, correction)) if correction else None

    @property
    def teacher(self) -> Model:
        """The model that teaches, in evaluation mode."""
        return self._teacher[0]

    def against(self, logits: Tensor, taught: Tensor) -> Tensor:
        """The loss of each example ``(B,)``, from the student's logits and the teacher's log-probabilities."""
        return distillation(
            logits,
            taught,
            temperature=self.temperature,
            smoothing=self.smoothing,
            channel=self._channel,
            reduction="none",
        )

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over the batch of the student's cross-entropy against the teacher."""
        with torch.no_grad():
            taught = self.teacher.to(batch.x.device)(batch.x)
        losses = self.against(self.model.latent(batch.x).mean, taught)
        return weighted(losses, batch).sum() / batch.size


def _check_student(model: Model) -> None:
    """Refuse stages of a student that learning from its logits would leave untrained, or out of account."""
    stages = {
        f"the scale of {type(model.head).__name__}": getattr(model.head, "noisy", False),
        "a temperature": isinstance(model.temperature, nn.Module) or model.temperature != 1,
        "a link": model.link is not None,
        "a channel": model.channel is not None,
    }
    if found := [name for name, there in stages.items() if there]:
        raise DubitoError(
            "a student learns its logits, and nothing else of a model",
            expected="a Point head and no temperature, link or channel",
            got=", ".join(found),
        )
