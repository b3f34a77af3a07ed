"""Many runs at once on one GPU: equal networks stacked along a new first axis, one captured graph per step.

A small network does not fill a GPU. Runs that share network, method and batch size, and differ in seed, labels and
numeric hyper-parameters, are trained as one: parameters are stacked to ``(R, ...)`` and the step of `train.fit` is
mapped over the first axis with `torch.vmap`. Since no run reads another's parameters, the gradient of the summed
loss is each run's own gradient. The data stays on the device; on CUDA the whole step, optimiser included, is
captured once as a graph and replayed.

The order of examples is that of `train.fit` with ``batching="stream"``, so a stacked run equals a plain one up to
rounding, unless its method draws random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state

from ._lanes.convolutions import HalfConvolutions
from ._lanes.replay import Noise, Step, captured, draw, hand_over, own_stream, stream_batches, together
from ._method import Method, Stages
from .data import normalise
from .errors import DubitoError
from .model import Model

__all__ = ["Stack", "together"]

Statistics = tuple[float, ...] | None


@dataclass
class Stack:
    """R runs of one method, trained together by `steps`.

    Arguments:
        method, static: the method and the parameters that all runs share (text, flags, ranks).
        hyper: numeric parameters that differ between runs, each a tensor ``(R,)``.
        models: one model per run, initialised by its own seed; a fixed channel may differ between runs.
        inputs: the images or features ``(M, ...)`` that all runs read.
        rows, labels: per run, the rows of its training examples and their observed labels, both ``(R, n)``.
        seeds: per run, what keys the order of its examples.
        mean, std: normalisation of the inputs, as in `data.LabelledData`.
        convolutions: their precision on a GPU.
    """

    method: Method
    models: Sequence[Model]
    inputs: Tensor
    rows: Tensor
    labels: Tensor
    seeds: Sequence[int]
    hyper: Mapping[str, Tensor] = field(default_factory=dict)
    static: Mapping[str, Any] = field(default_factory=dict)
    mean: Statistics = None
    std: Statistics = None
    convolutions: torch.dtype = torch.bfloat16

    def __post_init__(self) -> None:
        parameters, buffers = stack_module_state(list(self.models))
        stateful = sorted(name for name in buffers if not name.startswith("channel."))
        if stateful:
            raise DubitoError("stacked runs take networks without buffers", got=", ".join(stateful[:3]))
        device = self.inputs.device
        self.parameters = {k: v.detach().to(device).requires_grad_() for k, v in parameters.items()}
        self.buffers = {k: v.detach().to(device) for k, v in buffers.items()}
        self.template = copy.deepcopy(self.models[0]).to("meta")
        self.hyper = {k: v.to(device) for k, v in self.hyper.items()}
        scale = (self.mean, self.std)
        self.scale = tuple(None if s is None else torch.tensor(s, device=device) for s in scale)
        self.stream = own_stream(self.inputs.is_cuda)

    def steps(
        self,
        *,
        epochs: int,
        batch_size: int,
        optimizer: Callable[..., torch.optim.Optimizer],
        visit: Callable[[int], None] | None = None,
        every: int = 1,
    ) -> Iterator[None]:
        """Train all runs, one step per item of the iterator; `visit(e)` is called after each `every`-th epoch.

        All work is queued on the stack's own stream, so that several stacks advanced in turn (`together`) run at
        the same time.
        """
        with self._place():
            positions = self.rows.new_zeros(len(self.models), batch_size)
            options = {"fused": True, "capturable": True} if positions.is_cuda else {}
            trained = optimizer(self.parameters.items(), **options)
        step = captured(partial(self._step, positions, trained), self.stream)
        batches = stream_batches(self.rows.shape[1], self.seeds, epochs, batch_size, self.rows.device)
        for epoch in range(1, epochs + 1):
            with self._place():
                _, several = next(batches)
            for batch in several:
                with self._place():
                    positions.copy_(batch)
                    step()
                yield
            if visit is not None and (epoch % every == 0 or epoch == epochs):
                with self._place():
                    visit(epoch)
        hand_over(self.stream)

    @torch.no_grad()
    def log_probs(self, rows: Tensor, *, batch_size: int = 512) -> Tensor:
        """log p of the true class for rows of the inputs, ``(n,)`` for all runs or ``(R, n)`` -> ``(R, n, K)``."""
        rows = rows.expand(len(self.models), -1)
        found = []
        with self._place():
            for part in rows.split(batch_size, dim=1):
                x = self._inputs(part)
                noise = self._noise(x.shape[1])
                found.append(torch.vmap(self._predict)(self._state(), dict(self.hyper), x, noise))
            log_p = torch.cat(found, dim=1)
        hand_over(self.stream, log_p)
        return log_p

    def _place(self) -> AbstractContextManager[None]:
        return on_stream(self.stream, self.convolutions)

    def _step(self, positions: Tensor, optimizer: torch.optim.Optimizer) -> None:
        part = self.rows.gather(1, positions)
        x, y = self._inputs(part), self.labels.gather(1, positions)
        noise = self._noise(positions.shape[1])
        losses = torch.vmap(self._loss)(self._state(), dict(self.hyper), x, y, noise)
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        optimizer.step()

    def _inputs(self, rows: Tensor) -> Tensor:
        x = normalise(self.inputs[rows.flatten()], *self.scale)
        return x.unflatten(0, rows.shape)  # type: ignore[no-any-return]

    def _noise(self, examples: int) -> Noise:
        stages = self._stages({k: v[0] for k, v in self.hyper.items()})
        return draw(self.models[0], stages, examples, self.inputs.device, len(self.models))

    def _stages(self, values: Mapping[str, Tensor]) -> Stages:
        return self.method.build(**self.static, **values)

    def _one(self, values: Mapping[str, Tensor]) -> Step:
        """The step of one run: the template with its hyper-parameters; `functional_call` puts in its weights."""
        stages = self._stages(values)
        model = copy.copy(self.template)
        for name, value in stages.model.items():
            setattr(model, name, value)
        return Step(model, stages)

    def _state(self) -> dict[str, Tensor]:
        return {f"model.{name}": value for name, value in (self.parameters | self.buffers).items()}

    def _loss(self, state: Any, values: Any, x: Tensor, y: Tensor, noise: Noise) -> Tensor:
        return functional_call(self._one(values), state, (x, y, noise))  # type: ignore[no-any-return]

    def _predict(self, state: Any, values: Any, x: Tensor, noise: Noise) -> Tensor:
        return functional_call(self._one(values), state, (x, None, noise))  # type: ignore[no-any-return]


@contextmanager
def on_stream(
    stream: torch.cuda.Stream | None, convolutions: torch.dtype = torch.bfloat16, *, rows: bool = False
) -> Iterator[None]:
    """On a GPU: the stack's own stream, and the precision and form of its convolutions."""
    if stream is None:
        yield
        return
    with torch.cuda.stream(stream), HalfConvolutions(convolutions, rows=rows):
        yield
