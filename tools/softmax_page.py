# ruff: noqa: E501
"""Write docs/expected-softmax.md and its picture from the lines in results/benchmarks/, and from nothing else.

python tools/softmax_page.py            write the page and the picture
python tools/softmax_page.py --check    only say whether the page is up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from softmax_accuracy_table import accuracy
from softmax_low_rank import Line, low_rank

from dubito.papers.figures import Drawing, save
from dubito.papers.figures._style import LOOKS, legend, sheet

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "results/benchmarks"
PAGE, PICTURE = Path("docs/expected-softmax.md"), Path("docs/pictures/softmax-growth")

INTRODUCTION = """# The expected softmax

Written by `python tools/softmax_page.py` from `results/benchmarks/`; do not edit.

A heteroscedastic classifier needs p_c = E[softmax(u / tau)_c] with Gaussian logits u. Public code samples it. dubito
computes it: softmax(u / tau)_c is the probability that c wins a race u_k + tau g_k with Gumbel noise g, so for
independent classes it is a one-dimensional integral, at any temperature down to 0 (the multinomial probit).

```python
import torch
from dubito import links

mean, scale, labels = torch.randn(256, 10), torch.rand(256, 10), torch.randint(10, (256,))
reports = []
loss = links.expected_softmax_nll(mean, scale, labels, temperature=0.5, report=reports.append)
log_p = links.expected_log_softmax(mean, scale, temperature=0.5)  # all classes
print(reports[0])  # which method, why, how many points, and the error it knows of
```

| method | what it does | when `auto` takes it |
|---|---|---|
| `quadrature` | follows the mode of the integrand; refines every row to `tol` and says what it reached; two classes, with factors or without, are one Gaussian and exact to rounding | independent classes, or two; normal noise |
| `fixed` | the same integral with a fixed number of nodes, for `torch.vmap` and CUDA graphs; reports its error, refines nothing | never: ask for it |
| `qmc` | scrambled Sobol points shared by the batch | logistic or Gumbel noise; four or more factors; all classes with two or more factors, with one and more than 64 classes, or at a tolerance of 3e-3 and above |
| `mc` | random draws, as the papers do | never: ask for it |

With up to three factors a Gauss-Hermite rule over them goes around the quadrature. Where the factors are large beside
the rest of the noise and the temperature, p is a step in them, and orders of a rule may agree on a wrong value: such
rows are held against 8,192 quasi-random points and, where these may miss what lies far out, against points about the
mode. All classes with one factor share panels over it, which are halved where a class is a step, and sum to 1.
`predictive_variance` gives the variance of the softmax without keeping draws. A temperature can be learned (`het:temperature=learned`, or any module as
the model's `temperature`) or chosen on validation log-likelihood (`compose.search`);
[what temperature does](temperature.md) is a page of its own.
`torch.compile` calls these functions as they are, between two graphs, so that code around them compiles in its usual time and
gives the same numbers; none of their rules can be part of a graph with `fullgraph=True`. `expected_sigmoid`,
`expected_log_sigmoid` and `sampled_log_softmax`, which takes draws that are given, can.
`dubito/integrals/standalone.py` is one file that needs PyTorch alone: value, gradients and error, slower by far. Copy it.

The tests hold log p to 1e-6 in float64 and 1e-4 in float32 against independently coded quadrature and mpmath, for scales
from 0 to 50 in one row, temperatures from 0 to 100, shifts of 1e4 and probabilities of 1e-30.
"""


def read(name: str) -> list[Line]:
    """The lines of a file, none if there is no such file."""
    path = LINES / name
    return (
        [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


def page() -> str:
    """The whole page."""
    cpu, gpu, ranks = (
        read("expected_softmax_cpu.jsonl"),
        read("expected_softmax_gpu.jsonl"),
        read("low_rank.jsonl"),
    )
    parts = [
        INTRODUCTION.rstrip().split("\n"),
        [""],
        accuracy([*read("softmax_accuracy_cpu.jsonl"), *read("softmax_accuracy_gpu.jsonl")]),
        _speed(cpu, gpu),
        _growth(cpu, gpu),
        _errors(gpu),
        low_rank(ranks),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _speed(cpu: Sequence[Line], gpu: Sequence[Line]) -> Iterator[str]:
    yield "## Speed"
    yield ""
    yield "Forward and backward of the mean negative log-likelihood, against eager Monte Carlo with 1,000 samples: medians of alternated blocks of calls (`benchmarks/alternated.py`). The first call of a block comes when the other methods have filled caches and threads have gone to sleep: *faster, first call*."
    yield ""
    yield "| device | rows x classes | tau | inputs | method | time, ms | faster | faster, first call | error of the gradient | extra memory / inputs |"
    yield "|---|---|---:|---|---|---:|---:|---:|---:|---:|"
    for line in [*cpu, *gpu]:
        if line["what"] != "nll":
            continue
        on_cpu = line.get("extra_mib") is None
        memory = "" if on_cpu else f"{line['extra_over_inputs']:,.1f}"
        cold = f"{line['faster_first']:.1f}x" if "faster_first" in line else ""
        threads = "1 thread" if line["threads"] == 1 else f"{line['threads']} threads"
        yield (
            f"| {f'CPU, {threads}' if on_cpu else 'H200'} | {line['rows']:,} x {line['classes']:,} | {line['tau']:g} | {line['dtype']} "
            f"| {line['method']} | {line['ms']:.2f} | {line['faster']:.1f}x | {cold} | {line['error_gradient']:.0e} | {memory} |"
        )
    yield ""
    yield from _conditions(cpu, gpu)
    yield ""


def _conditions(cpu: Sequence[Line], gpu: Sequence[Line]) -> Iterator[str]:
    """Where and how the lines were made, and what is not known."""
    for first in {line["threads"]: line for line in reversed(cpu)}.values():
        yield (
            f"CPU, {first['threads']} thread(s): by the clock, torch {first['torch']}, {first['date']}, load {first['load']:g} on "
            f"{first['cores']} cores at the start: `{first['command']}`."
        )
        ratios = [
            x["faster"]
            for x in cpu
            if x["what"] == "nll" and x["method"] == "quadrature" and x["threads"] == first["threads"]
        ]
        if ratios:
            yield f"There the quadrature is {min(ratios):.1f} to {max(ratios):.1f} times as fast as 1,000 samples."
    if not gpu:
        return
    first = gpu[0]
    yield (
        f"GPU: {first['hardware']}, torch {first['torch']}, {first['date']}, inputs ready, between CUDA events; load "
        f"{first['load']} on the {first['cores']} cores of its host at the start: `{first['command']}`."
    )
    yield (
        "A call launches its kernels in some tenths of a millisecond, and up to some tens of thousands of rows that is most of "
        "its time: it grows with the load of the host. The quadrature waits for the device once, to learn whether any row is "
        "left for the thorough rule."
    )


def _growth(cpu: Sequence[Line], gpu: Sequence[Line]) -> Iterator[str]:
    yield "## Growth"
    yield ""
    yield f"![Time against classes and rows](pictures/{PICTURE.name}.svg)"
    yield ""
    yield "| device | of | rows | classes | time, ms | microseconds per row and class |"
    yield "|---|---|---:|---:|---:|---:|"
    for name, lines in (("CPU", cpu), ("H200", gpu)):
        for line in lines:
            if line["what"].startswith("growth"):
                yield f"| {name} | {line['what'].split()[-1]} | {line['rows']:,} | {line['classes']:,} | {line['ms']:,.1f} | {line['ns_per'] / 1e3:.3g} |"
    yield ""
    for what, key in (("growth in classes", "classes"), ("growth in rows", "rows")):
        for name, lines in (("CPU", cpu), ("H200", gpu)):
            points = [line for line in lines if line["what"] == what]
            if len(points) > 2:
                slope = _slope([p[key] for p in points[-3:]], [p["ms"] for p in points[-3:]])
                yield f"{name}, {key} {points[0][key]:,} to {points[-1][key]:,}: the last three points grow with power {slope:.2f}."
    yield ""


def _slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def _errors(gpu: Sequence[Line]) -> Iterator[str]:
    lines = [line for line in gpu if line["what"].startswith("error of log p")]
    if not lines:
        return
    names = [k for k in lines[0] if k.startswith(("mc", "qmc")) and ", p" not in k]
    yield "## Errors of the sampled forms"
    yield ""
    yield (
        "Root mean square error of log p and, after the bar, of p, over rows with likely and unlikely labels alike and four sets of "
        "draws. How many quasi-random points match 1,000 random draws depends on which of the two is meant."
    )
    yield ""
    yield "| classes | tau | " + " | ".join(names) + " |"
    yield "|---:|---:|" + "---:|" * len(names)
    for line in lines:
        cells = " | ".join(f"{line[n]:.1e} / {line[n + ', p']:.1e}" for n in names)
        yield f"| {line['classes']} | {line['tau']:g} | {cells} |"
    yield ""


def picture(cpu: Sequence[Line], gpu: Sequence[Line]) -> Drawing:
    """Time against classes and rows, doubly logarithmic, with a line of slope 1."""
    figure, axes = sheet(1, 2, 8.4, 3.6)
    for ax, what, key in zip(axes[0], ("growth in classes", "growth in rows"), ("classes", "rows")):
        for how, (name, lines, time) in zip(LOOKS, (("CPU", cpu, "ms"), ("H200", gpu, "ms"))):
            points = [(x[key], x[time]) for x in lines if x["what"] == what]
            if points:
                ax.plot(*zip(*points), label=name, **how.line())
            if points and name == "CPU":
                x, y = points[-1]
                ax.plot(
                    [points[0][0], x],
                    [y * points[0][0] / x, y],
                    color="#999999",
                    linewidth=0.8,
                    label="linear",
                )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(key)
        ax.set_ylabel("milliseconds")
        legend(ax, fontsize=7)
    rows = sorted({x["rows"] for x in cpu if x["what"] == "growth in classes"})
    text = f"Quadrature, forward and backward, float32, tau 1. Left: {rows[0] if rows else 0} rows on the CPU, 256 on the GPU; right: 10 classes."
    return Drawing(figure, text)


def main() -> None:
    """Write, or only compare."""
    text = page()
    if "--check" in sys.argv:
        if (ROOT / PAGE).read_text(encoding="utf-8") != text:
            raise SystemExit(f"{PAGE} is not up to date: python tools/softmax_page.py")
        return
    (ROOT / PAGE).write_text(text, encoding="utf-8")
    save(picture(read("expected_softmax_cpu.jsonl"), read("expected_softmax_gpu.jsonl")), ROOT / PICTURE)


if __name__ == "__main__":
    main()
