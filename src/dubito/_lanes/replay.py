"""What stacks and lanes share: the order of batches, one step as a pure function, captured and replayed steps."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import targets
from .._method import Stages
from .._random import bits, key
from .._tensors import as_weights
from ..heads import Latent, LowRank
from ..model import Model, example_losses

Noise = dict[str, Tensor]


class Step(nn.Module):
    """Mean loss of a batch as a function of inputs, labels and noise; log-probabilities without labels.

    Arguments:
        latent: replaces `Model.latent`, where the backbone is run in another way.
    """

    def __init__(
        self, model: Model, stages: Stages, latent: Callable[[Tensor], Latent] | None = None
    ) -> None:
        super().__init__()
        self.model, self.stages, self.latent = model, stages, latent

    def forward(self, x: Tensor, y: Tensor | None, noise: Noise) -> Tensor:
        """Mean over the batch of the loss, or ``(B, K)``."""
        if y is not None:
            return self.losses(x, y, noise).mean()
        return self.model.log_probs(self._latent(x), noise=_sampled(noise))

    def losses(self, x: Tensor, y: Tensor, noise: Noise) -> Tensor:
        """One loss per example ``(B,)``."""
        latent, target, make = self._latent(x), y, self.stages.target
        if is_label_noise(self.stages):
            hot = as_weights(y, self.model.num_classes, latent.mean.dtype)
            target = targets._label_noise(hot, noise["label"], **make.keywords)  # type: ignore[union-attr]
        elif make is not None:
            target = make(y, self.model.num_classes)
        return example_losses(self.model, latent, target, self.stages.loss, noise=_sampled(noise))

    def _latent(self, x: Tensor) -> Latent:
        return (self.latent or self.model.latent)(x)


def _sampled(noise: Noise) -> tuple[Tensor, Tensor | None] | None:
    return (noise["latent"], noise.get("factor")) if "latent" in noise else None


def is_label_noise(stages: Stages) -> bool:
    """Whether a method draws noise on its labels."""
    return isinstance(stages.target, partial) and stages.target.func is targets.label_noise


# From this many samples on, all examples of a batch share their draws; sharing fewer would correlate their losses.
SHARED_FROM = 1000


def draw(model: Model, stages: Stages, examples: int, device: torch.device, *runs: int) -> Noise:
    """The random numbers of one step, with leading axes `runs`: label noise, and latent noise.

    They come from the device's own generator, which a captured graph advances at each replay.
    """
    found, own = {}, 1 if model.samples >= SHARED_FROM else examples
    if is_label_noise(stages):
        found["label"] = torch.randn(*runs, examples, model.num_classes, device=device)
    if getattr(model.head, "noisy", False):
        found["latent"] = torch.randn(*runs, model.samples, own, model.num_classes, device=device)
    if isinstance(model.head, LowRank):
        found["factor"] = torch.randn(*runs, model.samples, own, model.head.rank, device=device)
    return found


def stream_batches(
    n: int, seeds: Sequence[int], epochs: int, size: int, device: torch.device, start: int = 0
) -> Iterator[tuple[int, Tensor]]:
    """The batches of `_batches.Order` with ``batching="stream"``, for several seeds at once, made on the device.

    For each epoch from `start` on: the epoch in which its first batch begins, and positions ``(steps, R, B)``. A
    batch that spans two epochs comes with the second; the last batch of all is filled up from one epoch more.
    """
    keys = torch.tensor(list(seeds), device=device).unsqueeze(1)
    index, purpose = torch.arange(n, device=device), key("shuffle")

    def order(epoch: int) -> Tensor:
        return torch.sort(bits(keys, purpose, epoch, index), dim=1, stable=True).indices

    rest = order(start - 1)[:, n - start * n % size :]  # left over by earlier epochs
    for epoch in range(start, epochs):
        begins = epoch - 1 if rest.shape[1] else epoch
        here = torch.cat([rest, order(epoch)], 1)
        if epoch + 1 == epochs and here.shape[1] % size:
            here = torch.cat([here, order(epochs)[:, : size - here.shape[1] % size]], 1)
        steps = here.shape[1] // size
        whole, rest = here[:, : steps * size], here[:, steps * size :]
        yield begins, whole.unflatten(1, (steps, size)).transpose(0, 1)


_DONE: Any = object()


def together(iterators: Sequence[Iterator[None]]) -> None:
    """Advance several stacks or lanes in turn, a step at a time, until all are done."""
    running = list(iterators)
    while running:
        running = [iterator for iterator in running if next(iterator, _DONE) is not _DONE]


def own_stream(on_gpu: bool) -> torch.cuda.Stream | None:
    """A new stream that waits for all work queued so far; None on the CPU."""
    if not on_gpu:
        return None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    return stream


def hand_over(stream: torch.cuda.Stream | None, *tensors: Tensor) -> None:
    """Make the current stream wait for all work queued on `stream`, and let it read `tensors` made there."""
    if stream is None:
        return
    here = torch.cuda.current_stream()
    here.wait_stream(stream)
    for tensor in tensors:  # or their memory could be reused while the caller still reads it
        tensor.record_stream(here)


def capturable(make: Callable[..., Any]) -> dict[str, bool]:
    """The options, of those that the optimizer has, by which it can be captured and runs as one kernel."""
    name = getattr(make, "func", make).__name__.upper()
    takes = inspect.signature(getattr(torch.optim, name, torch.optim.Adam)).parameters
    return {option: True for option in ("fused", "capturable") if option in takes}


def captured(step: Callable[[], None], stream: torch.cuda.Stream | None) -> Callable[[], None]:
    """The step as a CUDA graph, captured at the fourth call (the first three warm up); on the CPU the step itself.

    Each graph is captured on the stream it is replayed on: graphs captured on one stream share its cuBLAS workspace
    and would corrupt each other if they were replayed at the same time.
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
