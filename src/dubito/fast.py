"""Many runs at once on one GPU: equal networks stacked along a new first axis, one captured graph per step.

A small network does not fill a GPU. Runs that differ in seed, labels and numeric hyper-parameters, but share the
network, method and batch size, are trained as one: parameters are stacked to ``(R, ...)``, the step of `train.fit`
is mapped over the first axis with `torch.vmap`, and since no run reads another's parameters, the gradient of the
summed loss is each run's own gradient. The data stays on the device; on CUDA the whole step, optimiser included,
is captured once as a graph and replayed.

The order of examples is that of `train.fit` with ``batching="stream"``, so that a stacked run equals a plain one up
to rounding (and up to the random numbers of methods that draw any).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from . import targets
from ._convolutions import HalfConvolutions
from ._random import bits, key
from ._tensors import as_weights
from .data import normalise
from .errors import DubitoError
from .heads import Diagonal, LowRank
from .methods import Method, Stages
from .model import Model, example_losses

Statistics = tuple[float, ...] | None


@dataclass
class Stack:
    """R runs of one method, trained together by `train`.

    Arguments:
        method, static: the method and the parameters that all runs share (text, flags, ranks).
        hyper: numeric parameters that differ between runs, each a tensor ``(R,)``.
        models: one model per run, initialised by its own seed; a fixed channel may differ between runs.
        inputs: the images or features ``(M, ...)`` that all runs read.
        rows, labels: per run, the rows of its training examples and their observed labels, both ``(R, n)``.
        seeds: per run, what keys the order of its examples.
        mean, std: normalisation of the inputs, as in `data.LabelledData`.
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
        self.stream = torch.cuda.Stream() if self.inputs.is_cuda else None

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

        All work is queued on a stream of the stack's own, so that several stacks advanced in turn (`together`)
        fill the gaps in each other's work.
        """
        with _on(self.stream):
            positions = self.rows.new_zeros(len(self.models), batch_size)
            options = {"fused": True, "capturable": True} if positions.is_cuda else {}
            trained = optimizer(self.parameters.items(), **options)
        step = _captured(partial(self._step, positions, trained), self.stream)
        batches = self._batches(epochs, batch_size)
        for epoch in range(1, epochs + 1):
            with _on(self.stream):
                several = next(batches)
            for batch in several:
                with _on(self.stream):
                    positions.copy_(batch)
                    step()
                yield
            if visit is not None and (epoch % every == 0 or epoch == epochs):
                with _on(self.stream):
                    visit(epoch)

    @torch.no_grad()
    def log_probs(self, rows: Tensor, *, batch_size: int = 512) -> Tensor:
        """log p of the true class for rows of the inputs, ``(n,)`` for all runs or ``(R, n)`` -> ``(R, n, K)``."""
        rows = rows.expand(len(self.models), -1)
        found = []
        with _on(self.stream):
            for part in rows.split(batch_size, dim=1):
                x = self._inputs(part)
                noise = self._draw(x.shape[1])
                found.append(torch.vmap(self._predict)(self._state(), dict(self.hyper), x, noise))
            return torch.cat(found, dim=1)

    def _step(self, positions: Tensor, optimizer: torch.optim.Optimizer) -> None:
        part = self.rows.gather(1, positions)
        x, y = self._inputs(part), self.labels.gather(1, positions)
        noise = self._draw(positions.shape[1])
        losses = torch.vmap(self._loss)(self._state(), dict(self.hyper), x, y, noise)
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()
        optimizer.step()

    def _inputs(self, rows: Tensor) -> Tensor:
        x = normalise(self.inputs[rows.flatten()], *self.scale)
        return x.unflatten(0, rows.shape)  # type: ignore[no-any-return]

    def _batches(self, epochs: int, size: int) -> Iterator[Tensor]:
        """Per epoch the positions of its steps, ``(steps, R, B)``: batches run across the end of an epoch."""
        n = self.rows.shape[1]
        seeds = torch.tensor(list(self.seeds), device=self.rows.device).unsqueeze(1)
        index, purpose = torch.arange(n, device=self.rows.device), key("shuffle")
        rest = self.rows.new_zeros(len(self.seeds), 0)

        def order(epoch: int) -> Tensor:
            return torch.sort(bits(seeds, purpose, epoch, index), dim=1, stable=True).indices

        for epoch in range(epochs):
            here = torch.cat([rest, order(epoch)], 1)
            if (
                epoch + 1 == epochs and here.shape[1] % size
            ):  # the last batch is filled up from the next epoch
                here = torch.cat([here, order(epochs)[:, : size - here.shape[1] % size]], 1)
            steps = here.shape[1] // size
            whole, rest = here[:, : steps * size], here[:, steps * size :]
            yield whole.unflatten(1, (steps, size)).transpose(0, 1)

    def _draw(self, examples: int) -> dict[str, Tensor]:
        """The random numbers of one step: label noise, and latent noise shared by the examples of a batch."""
        model, device, runs = self.models[0], self.inputs.device, len(self.models)
        found = {}
        if _is_label_noise(self._stages({k: v[0] for k, v in self.hyper.items()})):
            found["label"] = torch.randn(runs, examples, model.num_classes, device=device)
        if isinstance(model.head, Diagonal | LowRank):
            found["latent"] = torch.randn(runs, model.samples, 1, model.num_classes, device=device)
        if isinstance(model.head, LowRank):
            found["factor"] = torch.randn(runs, model.samples, 1, model.head.rank, device=device)
        return found

    def _stages(self, values: Mapping[str, Tensor]) -> Stages:
        return self.method.build(**self.static, **values)

    def _model(self, stages: Stages) -> Model:
        """The template with this run's hyper-parameters; its weights are replaced when it is called."""
        model = copy.copy(self.template)
        model._modules = dict(self.template._modules)
        for name, value in stages.model.items():
            setattr(model, name, value)
        return model

    def _state(self) -> dict[str, Tensor]:
        return {f"model.{name}": value for name, value in (self.parameters | self.buffers).items()}

    def _loss(self, state: Any, values: Any, x: Tensor, y: Tensor, noise: dict[str, Tensor]) -> Tensor:
        stages = self._stages(values)
        step = _Step(self._model(stages), stages)
        return functional_call(step, state, (x, y, noise))  # type: ignore[no-any-return]

    def _predict(self, state: Any, values: Any, x: Tensor, noise: dict[str, Tensor]) -> Tensor:
        step = _Step(self._model(self._stages(values)), None)
        return functional_call(step, state, (x, None, noise))  # type: ignore[no-any-return]


class _Step(nn.Module):
    """Mean loss of a batch, or log-probabilities where there are no stages to train."""

    def __init__(self, model: Model, stages: Stages | None) -> None:
        super().__init__()
        self.model, self.stages = model, stages

    def forward(self, x: Tensor, y: Tensor | None, noise: dict[str, Tensor]) -> Tensor:
        latent = self.model.latent(x)
        sampled = (noise["latent"], noise.get("factor")) if "latent" in noise else None
        if self.stages is None or y is None:
            return self.model.log_probs(latent, noise=sampled)
        target = y
        if _is_label_noise(self.stages):
            hot = as_weights(y, self.model.num_classes, x.dtype)
            target = targets._label_noise(hot, noise["label"], **self.stages.target.keywords)  # type: ignore[union-attr]
        elif self.stages.target is not None:
            target = self.stages.target(y, self.model.num_classes)
        return example_losses(self.model, latent, target, self.stages.loss, noise=sampled).mean()


def _is_label_noise(stages: Stages) -> bool:
    return isinstance(stages.target, partial) and stages.target.func is targets.label_noise


def together(iterators: Sequence[Iterator[None]]) -> None:
    """Advance several stacks in turn, a step at a time, until all are done."""
    running = list(iterators)
    while running:
        running = [iterator for iterator in running if next(iterator, _DONE) is not _DONE]


_DONE: Any = object()


@contextmanager
def _on(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """On a GPU: the stack's own stream, and convolutions in bfloat16."""
    if stream is None:
        yield
        return
    with torch.cuda.stream(stream), HalfConvolutions():
        yield


def _captured(step: Callable[[], None], stream: torch.cuda.Stream | None) -> Callable[[], None]:
    """The step as a replayed CUDA graph, captured at its fourth call; on the CPU the step itself.

    A graph is captured on the stream it is replayed on: graphs captured on one stream share its cuBLAS workspace,
    and replaying them at the same time corrupts both.
    """
    if stream is None:
        return step
    graph, calls = torch.cuda.CUDAGraph(), 0

    def run() -> None:
        nonlocal calls
        calls += 1
        if calls <= 3:
            step()
            return
        if calls == 4:
            with torch.cuda.graph(graph, stream=stream):
                step()
        graph.replay()

    return run
