"""Several processes as one: the same script under ``torchrun``.

Every process holds all data and the weights, and takes its share of the examples of each step. A loss is a sum over
the share divided by the count of the whole step, so that the gradients of all processes add up to that of a single
process, even if shares are uneven or empty. Evaluation is divided by whole batches without padding, so that its
results are those of a single process, bit for bit. Only the first process writes to the run folder.

Random numbers that are not keyed by example (dropout, noise on labels, sampled links) are drawn by each process
separately; there, several processes agree with one in distribution only.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from .checkpoint import Checkpoint
from .errors import DubitoError

TIMEOUT = timedelta(minutes=10)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, and which of them this is. By default it is alone, and methods cost nothing."""

    rank: int = 0
    size: int = 1

    @property
    def alone(self) -> bool:
        """Whether there is no other process."""
        return self.size == 1

    def share(self, positions: Tensor) -> Tensor:
        """This process's part of the examples of a step; parts follow one another and may be empty."""
        return positions if self.alone else positions.tensor_split(self.size)[self.rank]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over processes; exact where all but one hold zero."""
        if not self.alone:
            self._call(dist.all_reduce, values)
        return values

    def whole(self, values: Tensor, total: int) -> Tensor:
        """Values ``(b,)`` of this share -> those of the whole step ``(total,)``, in its order."""
        if self.alone:
            return values
        sizes = [len(part) for part in torch.arange(total).tensor_split(self.size)]
        first = sum(sizes[: self.rank])
        found = values.new_zeros(total)
        found[first : first + sizes[self.rank]] = values
        return self.sum(found)

    def part(self, values: Tensor) -> Tensor:
        """The inverse of `whole`."""
        return self.share(values)

    def reduce(
        self, parameters: Iterable[nn.Parameter], total: Tensor, stop: int | None
    ) -> tuple[Tensor, int | None]:
        """Sum gradients and loss over processes, in one message; also agree on a signal that one of them got."""
        if self.alone:
            return total.detach(), stop
        trained = list(parameters)
        dtype = torch.promote_types(torch.float32, total.dtype)
        for p in trained:
            dtype = torch.promote_types(dtype, p.dtype)
        have = torch.tensor([float(p.grad is not None) for p in trained], dtype=dtype)
        asked = torch.tensor([float(stop == number) for number in _SIGNALS], dtype=dtype)
        grads = [
            (torch.zeros_like(p) if p.grad is None else _dense(p.grad)).flatten().to(dtype) for p in trained
        ]
        message = torch.cat(
            [*grads, have.to(total.device), asked.to(total.device), total.detach().to(dtype).view(1)]
        )
        self.sum(message)
        *parts, have, asked, summed = message.split([p.numel() for p in trained] + [len(trained), 2, 1])
        for p, gradient, had in zip(trained, parts, have.tolist()):
            p.grad = gradient.view_as(p).to(p.dtype) if had else None
        agreed = next((int(n) for n, count in zip(_SIGNALS, asked.tolist()) if count), None)
        return summed[0].to(total.dtype), agreed

    def same_start(self, module: nn.Module) -> None:
        """Give every process the first one's parameters and buffers."""
        if not self.alone:
            for value in module.state_dict().values():
                self._call(dist.broadcast, value, 0)

    def same_checkpoint(self, found: Checkpoint | None, device: torch.device) -> Checkpoint | None:
        """Give every process the checkpoint that the first one has found."""
        if self.alone:
            return found
        head: Any = None
        if found is not None:
            shapes = {
                group: {
                    name: [str(t.dtype).removeprefix("torch."), list(t.shape)] for name, t in named.items()
                }
                for group, named in found.tensors.items()
            }
            head = {"step": found.step, "state": found.state, "tensors": shapes}
        head = self._same_json(head, device)
        if head is None:
            return None
        tensors = {
            group: {name: self._same_tensor(found, group, name, kind, device) for name, kind in named.items()}
            for group, named in head["tensors"].items()
        }
        return Checkpoint(head["step"], tensors, head["state"], Path() if found is None else found.path)

    def _same_json(self, content: Any, device: torch.device) -> Any:
        text = torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8).to(device)
        length = torch.tensor(len(text), device=device)
        self._call(dist.broadcast, length, 0)
        text = text if self.rank == 0 else torch.zeros(int(length), dtype=torch.uint8, device=device)
        self._call(dist.broadcast, text, 0)
        return json.loads(bytes(text.tolist()))

    def _same_tensor(
        self,
        found: Checkpoint | None,
        group: str,
        name: str,
        kind: list[Any],
        device: torch.device,
    ) -> Tensor:
        if found is not None:
            value = found.tensors[group][name].contiguous().to(device)
        else:
            value = torch.zeros(kind[1], dtype=getattr(torch, kind[0]), device=device)
        if value.numel():
            self._call(dist.broadcast, value, 0)
        return value.cpu()

    def wait(self) -> None:
        """Wait until every process has come this far."""
        if not self.alone:
            self._call(dist.barrier)

    def _call(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except RuntimeError as error:
            raise DubitoError(
                "another process of this run was lost",
                where=f"process {self.rank} of {self.size}",
                got=str(error).splitlines()[0][:200],
                remedy="start the run again: it goes on from its last checkpoint",
            ) from error


def ranks(device: torch.device) -> Ranks:
    """The processes that ``torchrun`` has started, joined once per process; one process otherwise."""
    if not dist.is_available():
        return Ranks()
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) < 2 or "RANK" not in os.environ:
            return Ranks()
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
        if backend == "gloo":  # its threads may abort a process that ends with connections open
            atexit.register(_leave)
    return Ranks(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def check_module(module: nn.Module, here: Ranks) -> None:
    """Refuse layers that would compute statistics of a share of the batch."""
    if here.alone:
        return
    for name, layer in module.named_modules():
        over_batch = isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(
            layer, nn.SyncBatchNorm
        )
        tracks = isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats
        if over_batch or tracks:
            raise DubitoError(
                "batch norm over several processes would see a share of the batch only",
                where=f"{name} ({type(layer).__name__})",
                expected="layers that treat examples one by one, such as group norm",
                remedy="use one process, group norm, or on GPUs torch.nn.SyncBatchNorm",
            )


def _dense(gradient: Tensor) -> Tensor:
    return gradient.to_dense() if gradient.is_sparse else gradient
