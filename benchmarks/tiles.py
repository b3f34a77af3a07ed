"""Times of the fused convolutions (`dubito._fused`) over ways to cut them, so that `tiles.py` can have the fastest.

    python benchmarks/tiles.py --network wrn-28-2,resnet32 --seconds 45
    python benchmarks/tiles.py --check

Each convolution of a network, its gradient in the input and that in the weights is timed with four launches under
way on four streams, in a captured graph, on data that the second-level cache does not hold. Results are compared
with float32. Printed are the present cut and the five fastest of each, what a step's convolutions take with the
present cuts and with the fastest, and those as code for `tiles.py`. Candidates come in turn, those like the present
first; what the seconds do not suffice for is left out, and counted, as are those that spill registers. Every figure
is a line of results/benchmarks/tiles.jsonl ($OUT/tiles.jsonl where that is set). `--check` needs no GPU: nvcc
compiles candidates for as many seconds.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import torch
from tiles_cuts import Case, cases, check, in_turn
from torch import Tensor, nn

from dubito._fused import nvrtc, tiles
from dubito._fused.kernels import SIMPLE, Kernels, _source
from dubito._fused.plain import Plain
from dubito._fused.tiles import Cut, WeightCut
from dubito.papers.results import provenance

HERE = Path(__file__).resolve().parents[1]
STREAMS, LAUNCHES, REPLAYS = 4, 8, 4  # launches of a graph, on each stream; its replays to a figure
CACHE = 150e6  # bytes that are more than the second-level cache has
WRONG = {"there": 4e-3, "back": 4e-3, "weight": 3e-4}
DEVICE = "cuda"


class Candidates(Kernels):
    """`Kernels` that a table has compiled; each stream has its own, as blocks that ended are counted in it."""

    def __init__(self, kernels: dict[str, nvrtc.Kernel]) -> None:
        self.kernels, self.ended = kernels, torch.zeros(1, dtype=torch.int32, device=DEVICE)


def compiled(names: list[str], until: float) -> dict[str, nvrtc.Kernel]:
    """Kernels without spills, as many as are compiled in time."""
    architecture = "--gpu-architecture=sm_{}{}".format(*torch.cuda.get_device_capability()).encode()

    def one(share: list[str]) -> tuple[Any, dict[str, bytes]] | None:
        return nvrtc._built(_source(), share, architecture) if time.perf_counter() < until else None

    found: dict[str, nvrtc.Kernel] = {}
    with ThreadPoolExecutor(max(1, os.cpu_count() or 1)) as pool:
        for built in pool.map(one, [names[i : i + 2] for i in range(0, len(names), 2)]):
            if built is None:
                continue
            module = ctypes.c_void_p()
            nvrtc._cuda("cuModuleLoadData", ctypes.byref(module), built[0])
            for name, text in built[1].items():
                kernel = nvrtc.Kernel(module, text)
                if attribute(kernel, 3) == 0:  # bytes of a thread in memory
                    found[name] = kernel
    return found


def attribute(kernel: nvrtc.Kernel, which: int) -> int:
    value = ctypes.c_int()
    nvrtc._cuda("cuFuncGetAttribute", ctypes.byref(value), which, kernel.function)
    return value.value


class Data:
    """What the launches of a case read, several times over, and what they should give."""

    def __init__(self, case: Case, images: int) -> None:
        s, self.case = case.shape, case
        g = torch.Generator(DEVICE).manual_seed(0)
        large, small = (
            (images, s.side * s.stride, s.side * s.stride, s.inputs),
            (images, s.side, s.side, s.outputs),
        )
        bytes_ = 2 * 2 * (torch.Size(large).numel() + torch.Size(small).numel())
        self.sets = max(STREAMS, min(64, int(CACHE / bytes_) // STREAMS * STREAMS))

        def normal(*size: int) -> Tensor:
            return torch.randn(*size, generator=g, device=DEVICE)

        def record(channels: int) -> Tensor:
            spread = normal(2, channels).abs() + 0.5
            return torch.cat([normal(1, channels), spread, normal(1, channels)])

        several = [(normal(*large).bfloat16(), normal(*small).bfloat16()) for _ in range(STREAMS)]
        self.inputs = several + [(x.clone(), y.clone()) for x, y in several * (self.sets // STREAMS - 1)]
        self.weight = (normal(s.outputs, s.taps, s.inputs) * 0.1).bfloat16()
        self.record = record(s.inputs)
        self.then = [nn.BatchNorm2d(s.outputs).to(DEVICE) for _ in range(STREAMS)]
        self.reference = [self.run(Plain(), i, wide=True) for i in range(2)]

    def run(self, ops: Plain, i: int, wide: bool = False) -> Tensor:
        """Launch i as networks have it: every other one adds, where some of the network do."""
        case, shape = self.case, self.case.shape
        (x, y), (other_x, other_y) = self.inputs[i % self.sets], self.inputs[(i + 1) % self.sets]
        weight, bare, pre = self.weight, shape.taps == 1, case.network.startswith("wrn")
        record = None if bare else self.record
        if wide:
            if record is not None and case.kind != "back":
                x, record = torch.relu(record[2] * x.float() + record[3]).bfloat16(), None
            x, y, other_x, other_y, weight = (t.float() for t in (x, y, other_x, other_y, weight))
        if case.kind == "weight":
            return ops.conv_weight(x, y, shape, record)
        if case.kind == "there":
            added = other_y if pre and not bare and shape.stride == 1 and i % 2 else None
            return ops.conv(
                x, weight, shape, record, added, None if bare or wide else self.then[i % STREAMS]
            )[0]
        if bare:
            return ops.conv_input(y, weight, shape)[0]
        mask, stat = (x, self.record), (x, self.record)
        if pre or not i % 2:
            return ops.conv_input(y, weight, shape, None, mask, None if wide else stat)[0]
        return ops.conv_input(y, weight, shape, other_x, (x, None), None if wide else (other_x, self.record))[
            0
        ]


def measured(
    data: Data, kernels: dict[str, nvrtc.Kernel], cut: Cut | WeightCut, rounds: int
) -> dict[str, Any]:
    """Microseconds of a launch with others under way, and how far from float32 the result is."""
    case = data.case
    if isinstance(cut, WeightCut):
        tiles.WEIGHT_CUTS[case.shape] = cut
    else:
        tiles.CUTS[case.shape, case.kind == "back"] = cut
    ops = [Candidates(kernels) for _ in range(STREAMS)]
    error = 0.0
    for i, expected in enumerate(data.reference):
        error = max(error, float((data.run(ops[0], i) - expected).norm() / expected.norm()))
    side, graph = [torch.cuda.Stream() for _ in range(STREAMS)], torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for i, stream in enumerate(side):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for j in range(LAUNCHES):
                    data.run(ops[i], j * STREAMS + i if data.sets > STREAMS else i)
        for stream in side:
            torch.cuda.current_stream().wait_stream(stream)
    times = []
    graph.replay()
    for _ in range(rounds):
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        for _ in range(REPLAYS):
            graph.replay()
        ended.record()
        ended.synchronize()
        times.append(begun.elapsed_time(ended) * 1e3 / (REPLAYS * STREAMS * LAUNCHES))
    return {"us": statistics.median(times), "error": error}


def table(every: list[Case]) -> None:
    for network in dict.fromkeys(case.network for case in every):
        ours = [case for case in every if case.network == network and case.found]
        now = sum(case.often * case.found[case.present]["us"] for case in ours if case.present in case.found)
        best = sum(case.often * best_of(case)[1]["us"] for case in ours)
        print(f"\n{network}: convolutions of a step, us of the device: present {now:.0f}, fastest {best:.0f}")
        for case in ours:
            present = case.found.get(case.present, {}).get("us", float("nan"))
            print(
                f"{case.often} x {case.name}: {len(case.found)}, present {present:.1f} {astuple(case.present)}"
            )
            for cut, found in sorted(case.found.items(), key=lambda item: item[1]["us"])[:5]:
                print(
                    f"   {found['us']:5.1f} {astuple(cut)} registers {found['registers']} shared {found['shared']}"
                )


def best_of(case: Case) -> tuple[Cut | WeightCut, dict[str, Any]]:
    """The fastest, and the present cut unless that is more than two in a hundred slower."""
    cut, found = min(case.found.items(), key=lambda item: item[1]["us"])
    present = case.found.get(case.present)
    return (case.present, present) if present and present["us"] < 1.02 * found["us"] else (cut, found)


def code(every: list[Case]) -> str:
    """The literals of `tiles.py`; of networks that share a shape, the one that has it more often decides."""
    lines: dict[str, list[str]] = {
        "CUTS: dict[tuple[Shape, bool], Cut]": [],
        "WEIGHT_CUTS: dict[Shape, WeightCut]": [],
    }
    seen = set()
    for case in sorted(every, key=lambda case: -case.often):
        if not case.found or (case.shape, case.kind) in seen:
            continue
        seen.add((case.shape, case.kind))
        cut, shape = best_of(case)[0], f"Shape{astuple(case.shape)}"
        if isinstance(cut, WeightCut):
            if cut != tiles._weight_cut(case.shape):
                lines["WEIGHT_CUTS: dict[Shape, WeightCut]"].append(f"    {shape}: WeightCut{astuple(cut)},")
        elif cut != tiles._cut(case.shape, case.kind == "back"):
            lines["CUTS: dict[tuple[Shape, bool], Cut]"].append(
                f"    ({shape}, {case.kind == 'back'}): Cut{astuple(cut)},"
            )
    return "\n".join(f"{name} = {{\n" + "\n".join(rows) + "\n}" for name, rows in lines.items())


def timed(every: list[Case], images: int, seconds: float) -> None:
    begun = time.perf_counter()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.synchronize()
    order = list(in_turn(every))
    names = list(dict.fromkeys([*SIMPLE, *(case.launch(cut, images).name for case, cut in order)]))
    kernels = compiled(names, begun + 0.45 * seconds)
    print(f"{len(kernels)} of {len(names)} kernels after {time.perf_counter() - begun:.0f} s", flush=True)
    left = {
        id(case): [cut for c, cut in order if c is case and case.launch(cut, images).name in kernels]
        for case in every
    }
    total, failed = sum(map(len, left.values())), 0
    out = Path(os.environ.get("OUT", HERE / "results" / "benchmarks")) / "tiles.jsonl"
    commit, dirty = provenance()
    done = 0
    with out.open("a") as file:
        for case in every:
            data = Data(case, images)
            # What is left of the time is shared by what is left to do.
            share = (seconds - (time.perf_counter() - begun)) * len(left[id(case)]) / max(1, total - done)
            until = time.perf_counter() + share
            for cut in left[id(case)]:
                done += 1
                if case.found and time.perf_counter() > until:
                    continue
                launch = case.launch(cut, images)
                try:
                    found = measured(data, kernels, cut, 5)
                except Exception as error:  # a candidate that does not start is none
                    failed += 1
                    print(case.name, astuple(cut), str(error)[:200])
                    continue
                found |= {"registers": attribute(kernels[launch.name], 4), "shared": launch.shared}
                right = found["error"] < WRONG[case.kind]
                if right:
                    case.found[cut] = found
                else:
                    failed += 1
                    print("wrong:", case.name, astuple(cut), found["error"])
                line = {
                    "benchmark": "tiles", "network": case.network, "images": images, "shape": asdict(case.shape),
                    "kind": case.kind, "often": case.often, "cut": asdict(cut), "present": cut == case.present,
                    "right": right, "grid": launch.grid, "threads": launch.threads, **found,
                    "hardware": torch.cuda.get_device_name(), "commit": commit, "dirty": dirty,
                }  # fmt: skip
                file.write(json.dumps(line) + "\n")
            del data
            torch.cuda.empty_cache()
    tried = sum(len(case.found) for case in every)
    print(f"{tried} timed, {failed} failed, {len(order) - tried - failed} left out")
    table(every)
    print("\n" + code(every))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="wrn-28-2,resnet32", help="one or several, with commas")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--check", action="store_true", help="compile by nvcc, without a GPU")
    options = parser.parse_args()
    every = [case for network in options.network.split(",") for case in cases(network)]
    print(len(every), "cases,", sum(len(case.candidates) for case in every), "candidates", flush=True)
    check(every, options.seconds) if options.check else timed(every, options.images, options.seconds)


if __name__ == "__main__":
    main()
