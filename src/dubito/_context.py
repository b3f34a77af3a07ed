"""The surroundings of a training step: device, forked randomness, precision, compilation, averaged weights."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn

from ._random import key
from .errors import DubitoError
from .model import Model

_WORD = (1 << 63) - 1


def device_of(name: str) -> torch.device:
    """The device to train on; "auto" is the GPU if there is one (of several processes each its own)."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", torch.cuda.current_device())))
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        raise DubitoError(
            "this device cannot be used here",
            expected="auto, cpu or a GPU that torch sees",
            got=f"{name!r} ({str(error).splitlines()[0][:100]})",
        ) from None
    return device


class forked:  # noqa: N801 - a context, used like a function
    """Seed torch's default generators for a step, since dropout takes no other, and restore them afterwards.

    Inside, `at` seeds them for another step. Whatever runs between two steps draws from the fork too, never from
    the caller's generators, which are saved and restored once.
    """

    def __init__(self, seed: int, step: int, rank: int, device: torch.device) -> None:
        self.step, self._seed = step, seed * 0x9E3779B97F4A7C15
        self._other = key("dropout") ^ (rank * 0xBF58476D1CE4E5B9)
        self.generators = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()
            self.generators.append(torch.cuda.default_generators[device.index or 0])

    def __enter__(self) -> forked:
        self.before = [generator.get_state() for generator in self.generators]
        self.at(self.step)
        return self

    def at(self, step: int) -> None:
        """Seed for this step, whatever was drawn before."""
        word = (self._other ^ (self._seed + step)) & _WORD
        for generator in self.generators:
            generator.manual_seed(word)

    def __exit__(self, *_: object) -> None:
        for generator, state in zip(self.generators, self.before):
            generator.set_state(state)


def autocast(wanted: bool, device: torch.device) -> Any:
    """bfloat16 where torch deems it safe, if wanted."""
    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()


@contextmanager
def without_denormals(device: torch.device) -> Iterator[None]:
    """Inside, the CPU takes numbers too small for full precision (below 1e-38 in float32) as 0.

    A very confident network has gradients of that size, and a convolution of them takes a processor some sixty
    times as long.
    """
    if device.type != "cpu":
        yield
        return
    before = float(torch.tensor(1e-39) * 1.0) == 0.0  # torch has no way to ask
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


@contextmanager
def deterministic(wanted: bool, device: torch.device) -> Iterator[None]:
    """Refuse operations whose result depends on scheduling; all settings are restored afterwards."""
    if not wanted:
        yield
        return
    cudnn = torch.backends.cudnn
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    flags, workspace = (cudnn.deterministic, cudnn.benchmark), os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    try:
        if device.type == "cuda" and workspace is None:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True)
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        cudnn.deterministic, cudnn.benchmark = flags
        if device.type == "cuda" and workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


@contextmanager
def compiled(module: nn.Module, backend: bool | str) -> Iterator[None]:
    """Backbone and head of every model inside go through torch.compile, until the block is left."""
    if not backend:
        yield
        return
    models = [part for part in module.modules() if isinstance(part, Model)]
    named = [(model, name) for model in models for name in model.compiled_methods]
    by = "inductor" if backend is True else backend
    try:
        through = [torch.compile(getattr(model, name), backend=by) for model, name in named]
    except RuntimeError as error:
        raise DubitoError("torch.compile has no such backend", got=repr(backend)) from error
    for (model, name), method in zip(named, through):
        model.__dict__[name] = method  # in front of the method, for this instance alone
    try:
        yield
    finally:
        for model, name in named:
            del model.__dict__[name]


@torch.no_grad()
def update_average(average: Model, model: Model, decay: float) -> None:
    """average <- decay * average + (1 - decay) * model, for parameters and floating buffers; others are copied.

    A weight with several names, as in tied layers, is averaged once.
    """
    now = model.state_dict()
    moved = set()
    for name, value in average.state_dict().items():
        place = value.data_ptr(), value.shape, value.stride()
        if place in moved and value.numel():
            continue
        moved.add(place)
        if value.is_floating_point():
            value.lerp_(now[name].to(value.dtype), 1 - decay)
        else:
            value.copy_(now[name])
