"""Training with a matrix per annotator when there are thousands of them."""

from __future__ import annotations

import torch
from torch import Tensor

from .._batches import Batch
from ..channels import AnnotatorConfusion
from ..data import LabelledData
from ..errors import DubitoError
from .em import count_annotators, crowd_of
from .plain import Draw, Plain, mean_of_given, one_number

# Above this many annotators, matrices are updated row by row.
MANY = 1000


class SparseAnnotators(Plain):
    """Plain training whose penalty reads only the annotators of the batch.

    The penalty is called as ``penalty(channel, annotators=, counts=, fraction=)``, like `penalties.trace`: its mean
    over batches is the penalty on all annotators who gave a label. With a channel of row-sparse gradients
    (``AnnotatorConfusion(..., sparse=True)``) and `optim.row_adam`, a step costs in proportion to its labels.

    Reference:
        tanno2019 eq. 4
    """

    counts: Tensor

    def begin(self, data: LabelledData) -> None:
        """Count the labels of every annotator."""
        crowd = crowd_of(data)
        counts = torch.bincount(crowd.annotator, minlength=count_annotators(data))
        self.register_buffer("counts", counts)
        self.num_items = len(data)

    def forward(self, batch: Batch, draw: Draw) -> Tensor:
        """Mean over items of the sum over labels, plus the estimate of the penalty."""
        channel = self.model.channel
        if batch.annotators is None or not isinstance(channel, AnnotatorConfusion):
            raise DubitoError(
                "row-sparse training needs labels of annotators and a matrix for each",
                got=type(channel).__name__,
            )
        with channel.sharing(batch.annotators):
            total = mean_of_given(self.losses(self.model, batch, draw), batch)
            if self.penalty is None:
                return total
            # Labels are this process's part of the step, the fraction is of the whole step: the parts add up.
            fraction = batch.size / self.num_items
            found = self.penalty(channel, annotators=batch.annotators, counts=self.counts, fraction=fraction)
            return total + one_number(found)
