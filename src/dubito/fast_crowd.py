"""Many runs that learn from annotators at once: their procedures stacked along a new first axis.

As `dubito.fast`, for methods whose step is more than a loss of one label: matrices of annotators with a penalty, EM
around a network, the doctor net. The procedure itself (`procedures.Plain` or a subclass) is mapped over the runs,
with its parameters and buffers stacked to ``(R, ...)``, so that a stacked run and a plain one share all code of
their loss. Between epochs the posteriors of EM are updated run by run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from ._batches import Batch
from ._lanes.replay import captured, hand_over, own_stream, stream_batches
from .data import LabelledData, normalise
from .data._labelled import Triplets
from .errors import DubitoError
from .fast import on_stream
from .procedures import GeneralisedEM, Plain
from .procedures.em import crowd_of

__all__ = ["CrowdStack"]


@dataclass
class CrowdStack:
    """R runs of one procedure, trained together by `steps`.

    Arguments:
        procedures: one per run, around a model with its own initial weights; `begin` has been called with the data.
        data: per run its training examples, all of one size, on one device and sharing `inputs`. Every example has
            the same number of labels (or all have one, without annotators).
        seeds: per run, what keys the order of its examples.
        capture: whether a step is captured as a CUDA graph.
        convolutions, pixel_rows: precision and form of convolutions on a GPU, see `_lanes.convolutions`.
    """

    procedures: Sequence[Plain]
    data: Sequence[LabelledData]
    seeds: Sequence[int]
    capture: bool = True
    convolutions: torch.dtype = torch.bfloat16
    pixel_rows: bool = False

    def __post_init__(self) -> None:
        first = self.data[0]
        if not isinstance(first.inputs, Tensor) or any(d.inputs is not first.inputs for d in self.data):
            raise DubitoError("stacked runs share their inputs", got=f"{len(self.data)} sets")
        if len({len(d) for d in self.data}) != 1:
            raise DubitoError("stacked runs have equally many examples", got=str([len(d) for d in self.data]))
        self.inputs, self.scale = first.inputs, first._scale or (None, None)
        self.rows = torch.stack([_rows(d) for d in self.data])
        self.crowds: list[Triplets] = []
        self.labels, self.annotators = self._tables()
        parameters, buffers = stack_module_state(list(self.procedures))
        self.parameters, self.buffers = dict(parameters), dict(buffers)
        self.trained = {k: v for k, v in self.parameters.items() if v.requires_grad}
        self.template = copy.deepcopy(self.procedures[0]).to("meta")
        self.stream = own_stream(self.inputs.is_cuda)

    def steps(
        self,
        *,
        steps: int,
        batch_size: int,
        optimizer: Callable[..., torch.optim.Optimizer],
        visit: Callable[[int], None],
    ) -> Iterator[None]:
        """Train all runs, one step per item of the iterator; `visit(e)` is called at the end of each epoch."""
        n = self.rows.shape[1]
        if n % batch_size:
            raise DubitoError(
                "an epoch must be whole batches", got=f"{n} examples in batches of {batch_size}"
            )
        per_epoch = n // batch_size
        epochs = self.template.epochs = -(-steps // per_epoch)
        for procedure in self.procedures:
            procedure.epochs = epochs
        with self._place():
            positions = self.rows.new_zeros(len(self.procedures), batch_size)
            options = {"fused": True, "capturable": True} if positions.is_cuda else {}
            trained = optimizer(self.trained.items(), **options)
        batches = stream_batches(n, self.seeds, epochs, batch_size, self.rows.device)
        stage, run = None, self._captured(positions, trained)
        for epoch in range(epochs):
            with self._place():
                self._begin_epoch(epoch)
                if stage != (stage := getattr(self.template, "second_stage", False)):
                    run = self._captured(positions, trained)
                _, several = next(batches)
            for batch in several[: steps - epoch * per_epoch]:
                with self._place():
                    positions.copy_(batch)
                    run()
                yield
            with self._place():
                visit(epoch + 1)
        with self._place():
            self._update()
        hand_over(self.stream)

    def _place(self) -> AbstractContextManager[None]:
        return on_stream(self.stream, self.convolutions, rows=self.pixel_rows)

    def _captured(self, positions: Tensor, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
        step = partial(self._step, positions, optimizer)
        return captured(step, self.stream) if self.capture else step

    @torch.no_grad()
    def log_probs(self, rows: Tensor, *, batch_size: int = 1024) -> Tensor:
        """log p of the true class for rows of the inputs, ``(n,)`` for all runs or ``(R, n)`` -> ``(R, n, K)``."""
        rows = rows.expand(len(self.procedures), -1)
        with self._place():
            found = [
                torch.vmap(self._predict)(self._state(), self._inputs(part))
                for part in rows.split(batch_size, dim=1)
            ]
            log_p = torch.cat(found, dim=1)
        hand_over(self.stream, log_p)
        return log_p

    def snapshot(self) -> dict[str, Tensor]:
        """The present parameters and buffers of the models, ``(R, ...)``, without the ``model.`` of their names."""
        own = {k: v for k, v in self._state().items() if k.startswith("model.")}
        return {k.removeprefix("model."): v.detach().clone() for k, v in own.items()}

    @torch.no_grad()
    def restore(self, snapshot: dict[str, Tensor]) -> None:
        """Put parameters and buffers of the models back, in place."""
        state = self._state()
        for name, value in snapshot.items():
            state[f"model.{name}"].copy_(value)

    def _begin_epoch(self, epoch: int) -> None:
        """As the procedure's own: EM updates its posteriors at the end of a round."""
        self.template.epoch = epoch
        if isinstance(self.template, GeneralisedEM) and self.template.round_ends(epoch):
            self._update()

    def _update(self) -> None:
        if not isinstance(self.template, GeneralisedEM):
            return
        log_p = self.log_probs(self.rows)
        for i, (procedure, crowd) in enumerate(zip(self.procedures, self.crowds)):
            procedure.absorb(crowd, log_p[i])  # type: ignore[operator]
            self.buffers["posteriors"][i].copy_(procedure.posteriors)

    def _step(self, positions: Tensor, optimizer: torch.optim.Optimizer) -> None:
        x = self._inputs(self.rows.gather(1, positions))
        y = _take(self.labels, positions)
        who = None if self.annotators is None else _take(self.annotators, positions)
        losses = torch.vmap(self._loss, in_dims=(0, 0, 0, 0, None if who is None else 0))(
            self._state(), positions, x, y, who
        )
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        optimizer.step()

    def _loss(
        self, state: dict[str, Tensor], positions: Tensor, x: Tensor, y: Tensor, who: Tensor | None
    ) -> Tensor:
        size = len(x)
        batch = Batch(positions, x, y, complete=True, examples=size, given=size)
        if who is not None:
            row = torch.div(torch.arange(y.numel(), device=x.device), y.shape[1], rounding_mode="floor")
            batch = batch._replace(y=y.flatten(), row=row, annotators=who.flatten())
        found: Tensor = functional_call(self.template, state, (batch, _no_draw))
        return found

    def _predict(self, state: dict[str, Tensor], x: Tensor) -> Tensor:
        own = {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}
        found: Tensor = functional_call(self.template.model, own, (x,))
        return found

    def _state(self) -> dict[str, Tensor]:
        return self.parameters | self.buffers

    def _inputs(self, rows: Tensor) -> Tensor:
        return normalise(self.inputs[rows.flatten()], *self.scale).unflatten(0, rows.shape)  # type: ignore[no-any-return]

    def _tables(self) -> tuple[Tensor, Tensor | None]:
        """Labels ``(R, n)``, or labels and annotators ``(R, n, P)``."""
        if self.data[0].crowd is None:
            labels = torch.stack([d.labels for d in self.data])
            if bool((labels < 0).any()):
                raise DubitoError("stacked runs need a label for every example")
            return labels, None
        self.crowds = [crowd_of(d) for d in self.data]
        tables = [_table(crowd, len(d)) for crowd, d in zip(self.crowds, self.data)]
        return torch.stack([t[0] for t in tables]), torch.stack([t[1] for t in tables])


def _table(crowd: Triplets, count: int) -> tuple[Tensor, Tensor]:
    """Labels and annotators by item, ``(n, P)``, in the order in which the plain loop reads them."""
    each = torch.bincount(crowd.item, minlength=count)
    if int(each.min()) != int(each.max()):
        raise DubitoError(
            "stacked runs need equally many labels for every example",
            got=f"{int(each.min())} to {int(each.max())}",
            remedy="use the plain loop",
        )
    order = torch.sort(crowd.item, stable=True).indices.view(count, -1)
    return crowd.label[order], crowd.annotator[order]


def _take(table: Tensor, positions: Tensor) -> Tensor:
    """Per run the rows of a table: ``(R, n, ...)`` and ``(R, B)`` -> ``(R, B, ...)``."""
    where = positions.view(*positions.shape, *[1] * (table.dim() - 2))
    return table.gather(1, where.expand(*positions.shape, *table.shape[2:]))


def _rows(data: LabelledData) -> Tensor:
    return torch.arange(len(data), device=data.device) if data.rows is None else data.rows


def _no_draw(purpose: str) -> torch.Generator:
    raise DubitoError("stacked runs of annotators draw no noise", got=purpose, remedy="use the plain loop")
