"""3x3 convolutions of few channels: the kernels of `dubito._thin` against cuDNN, microseconds on the device.

    python benchmarks/thin.py

128 images in bfloat16, channels last; layers as residual networks for small images have them. A call is captured
twenty times in one CUDA graph, so that the host takes no part; the best of five replays counts. One line per layer
and direction is appended to results/benchmarks/thin.jsonl ($OUT/thin.jsonl where that is set).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from dubito._thin import thin_conv, thin_conv_weight
from dubito.papers.results import provenance

HERE = Path(__file__).resolve().parents[1]
LAYERS = ((16, 32), (32, 32), (32, 16), (64, 16), (64, 8), (128, 8))  # channels, height and width
CALLS = 20


def microseconds(call: Callable[[], Tensor]) -> float:
    """Of one call on the device."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    found = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / CALLS * 1e3)
    return min(found)


def calls(channels: int, size: int) -> Iterator[tuple[str, Callable[[], Tensor], Callable[[], Tensor]]]:
    """Directions, with our call and cuDNN's."""
    g = torch.Generator("cuda").manual_seed(0)
    x, grad = (
        torch.randn(128, channels, size, size, device="cuda", generator=g)
        .bfloat16()
        .contiguous(memory_format=torch.channels_last)
        for _ in range(2)
    )
    weight = torch.randn(channels, channels, 3, 3, device="cuda", generator=g)
    weight = weight.contiguous(memory_format=torch.channels_last)
    half = weight.bfloat16()

    def back(*wanted: bool) -> Tensor:
        ones = [1, 1]
        found = torch.ops.aten.convolution_backward(
            grad, x, half, None, ones, ones, ones, False, [0, 0], 1, wanted
        )
        return next(t for t in found if t is not None)

    yield "forward", lambda: thin_conv(x, weight, False), lambda: F.conv2d(x, half, padding=1)
    yield "input", lambda: thin_conv(grad, weight, True), lambda: back(True, False, False)
    yield "weight", lambda: thin_conv_weight(x, grad), lambda: back(False, True, False)


def main() -> None:
    torch.backends.cudnn.benchmark = True
    commit, dirty = provenance()
    out = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "thin.jsonl"
    for channels, size in LAYERS:
        for direction, ours, theirs in calls(channels, size):
            a, b = microseconds(ours), microseconds(theirs)
            line = {
                "benchmark": "thin", "channels": channels, "size": size, "direction": direction,
                "microseconds": {"ours": round(a, 2), "cudnn": round(b, 2)},
                "faster": round(b / a, 3), "hardware": torch.cuda.get_device_name(),
                "commit": commit, "dirty": dirty,
            }  # fmt: skip
            print(channels, size, direction, line["microseconds"], flush=True)
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
