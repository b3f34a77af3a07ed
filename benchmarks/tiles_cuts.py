"""Convolutions of networks and ways to cut them, for `tiles.py` beside this; and whether nvcc compiles them."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from dubito._fused import tiles
from dubito._fused.kernels import _source
from dubito._fused.networks import convolutions
from dubito._fused.tiles import Cut, Launch, Shape, WeightCut
from dubito.backbones import build

KINDS = ("there", "back", "weight")
SHARED_OF_ALL = 228 * 1024  # bytes of a processor
ARCHITECTURE = "sm_90"


@dataclass
class Case:
    """A convolution of a network in one of three kinds: how often a step has it, and what was tried."""

    network: str
    shape: Shape
    kind: str
    often: int
    present: Cut | WeightCut
    candidates: list[Cut | WeightCut]
    found: dict[Cut | WeightCut, dict[str, Any]] = field(default_factory=dict)

    def launch(self, cut: Cut | WeightCut, images: int) -> Launch:
        if isinstance(cut, WeightCut):
            return tiles.cut_weight_gradient(self.shape, images, cut)
        return tiles.cut_convolution(self.shape, images, self.kind == "back", cut)

    @property
    def name(self) -> str:
        s = self.shape
        return f"{s.inputs}->{s.outputs} at {s.side}, stride {s.stride}, {s.taps} taps, {self.kind}"


def cases(network: str) -> Iterator[Case]:
    layers = list(convolutions(build(network, (3, 32, 32))).values())  # type: ignore[arg-type]
    for shape, often in Counter(layers).items():
        for kind in KINDS:
            count = often - (kind == "back" and shape == layers[0])  # nothing goes back to the image
            if count == 0:
                continue
            present: Cut | WeightCut
            if kind == "weight":
                present = tiles.WEIGHT_CUTS.get(shape) or tiles._weight_cut(shape)
                tried: list[Cut | WeightCut] = [*weight_cuts(shape)]
            else:
                present = tiles.CUTS.get((shape, kind == "back")) or tiles._cut(shape, kind == "back")
                tried = [*cuts(shape, kind == "back")]
            tried.sort(key=lambda cut: far(cut, present))
            rest = [cut for cut in tried if cut != present]
            yield Case(network, shape, kind, count, present, [present, *rest])


def cuts(shape: Shape, back: bool) -> Iterator[Cut]:
    """What the kernels can do, less what leaves most of a processor idle."""
    inputs, outputs, side = tiles._sizes(shape, back)
    found: dict[Cut, None] = {}
    window = 3 if shape.taps == 9 else 1
    for pixels, columns, deep, high in itertools.product(
        (64, 128, 256, 512), (16, 32, 64, 128), (16, 32, 64), (2, 4)
    ):
        rows, images = min(side, pixels // side), max(1, pixels // side**2)
        threads, stages = tiles._threads(pixels, columns, high), window * inputs // max(deep, 1)
        parities = back and shape.stride == 2
        if columns > outputs or columns < min(outputs, 32) or deep > inputs or images > 4:
            continue
        if rows < high * (2 if side == 8 else 1) or (parities and (high != 4 or rows < 4)):
            continue
        if not max(64, outputs, inputs // 8) <= threads <= 512 or deep * 8 < inputs:
            continue
        # Registers for so many warps of a processor.
        for buffers, warps in itertools.product(
            sorted({min(b, stages) for b in (2, 3, 6)}), (16, 12) if high == 4 and columns > 16 else (16, 24)
        ):
            used = tiles.cut_convolution(
                shape, 128, back, Cut(pixels, columns, buffers, deep, high, 1)
            ).shared
            blocks = min(warps * 32 // threads, SHARED_OF_ALL // (used + 1024))
            if blocks * threads >= 256:
                found[Cut(pixels, columns, buffers, deep, high, blocks)] = None
    yield from found


def weight_cuts(shape: Shape) -> Iterator[WeightCut]:
    for pixels, out, into, blocks in itertools.product(
        (64, 128, 256, 512), (16, 32, 64), (16, 32), (64, 132)
    ):
        warps = max(1, out // 32) * (into // 8)
        if out > shape.outputs or into > shape.inputs or (out == 16 < shape.outputs) or 8 % warps:
            continue
        if pixels * out < 2048 or pixels < 8 // warps * 16 * (2 if shape.side == 8 else 1):
            continue
        cut = WeightCut(pixels, out, into, blocks)
        if tiles.cut_weight_gradient(shape, 128, cut).shared <= SHARED_OF_ALL // 2 - 1024:
            yield cut


def far(cut: Cut | WeightCut, present: Cut | WeightCut) -> tuple[int, tuple[int, ...]]:
    """How many choices are others, for an order of candidates."""
    return sum(a != b for a, b in zip(choices(cut), choices(present))), astuple(cut)


def choices(cut: Cut | WeightCut) -> tuple[int, ...]:
    if isinstance(cut, WeightCut):
        return astuple(cut)
    return *astuple(cut)[:-1], cut.blocks * tiles._threads(cut.pixels, cut.columns, cut.high)


def in_turn(every: list[Case]) -> Iterator[tuple[Case, Cut | WeightCut]]:
    """The present of all, then of each as many more as its share of the step."""
    weights = [case.often * case.shape.taps for case in every]
    turns = [iter(case.candidates) for case in every]
    for place in itertools.count():
        some = False
        for case, turn, weight in zip(every, turns, weights):
            for cut in itertools.islice(turn, 1 if place == 0 else 1 + 6 * weight // max(weights)):
                some = True
                yield case, cut
        if not some:
            return


def check(every: list[Case], seconds: float) -> None:
    """Candidates by nvcc, those of the present first."""
    until = time.perf_counter() + seconds
    names = list(dict.fromkeys(case.launch(cut, 128).name for case, cut in in_turn(every)))
    present = {case.launch(case.present, 128).name for case in every}

    def one(share: list[str]) -> dict[str, int]:
        if time.perf_counter() > until:
            return {}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "some.cu"
            lines = [f"auto kernel_{i} = &{name};" for i, name in enumerate(share)]
            file.write_text("\n".join([_source(), *lines]))
            command = ["nvcc", f"-arch={ARCHITECTURE}", "-std=c++17", "-cubin", "-Xptxas", "-v", "-o"]
            done = subprocess.run(
                [*command, f"{file}bin", str(file)], capture_output=True, text=True, check=False
            )
        assert done.returncode == 0, (share, done.stderr[-2000:])
        spills = dict(re.findall(r"entry function '(\w+)'.*?(\d+) bytes spill stores", done.stderr, re.S))
        return {name: int(spills[mangled(name)]) for name in share}

    found: dict[str, int] = {}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        for spills in pool.map(one, [names[i : i + 8] for i in range(0, len(names), 8)]):
            found |= spills
    for name in present & found.keys():
        if found[name]:
            print("present, with spills:", name, found[name])
    print(f"{len(found)} of {len(names)} compile; {sum(map(bool, found.values()))} spill")


def mangled(name: str) -> str:
    """As the compiler calls a template with these arguments."""
    kernel, arguments = name[:-1].split("<")
    letters = "".join(
        f"Lb{int(a == 'true')}E" if a in ("true", "false") else f"Li{a}E" for a in arguments.split(", ")
    )
    rest = "PKtS1_PKfS3_PtS1_S1_S3_S3_S1_S3_Pf4Norm" if kernel == "conv" else "PKtPKfS3_S1_Pfi"
    return f"_Z{len(kernel)}{kernel}I{letters}Ev{rest}"
