# ruff: noqa: E501
"""Write docs/expected-softmax.md and its picture from the lines in results/benchmarks/, and from nothing else.

python tools/softmax_page.py            write the page and the picture
python tools/softmax_page.py --check    only say whether the page is up to date
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dubito.papers.figures import Drawing, save
from dubito.papers.figures._style import LOOKS, legend, sheet

ROOT = Path(__file__).resolve().parents[1]
LINES = ROOT / "results/benchmarks"
PAGE, PICTURE = Path("docs/expected-softmax.md"), Path("docs/pictures/softmax-growth")
Line = dict[str, Any]
WAYS = ("everything", "factors, product rule", "factors, Sobol")

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
| `quadrature` | follows the mode of the integrand; refines every row to `tol` and says what it reached | independent classes, normal noise |
| `fixed` | the same integral with a fixed number of nodes, for `torch.vmap` and CUDA graphs; reports its error, refines nothing | never: ask for it |
| `qmc` | scrambled Sobol points shared by the batch | three or more factors; logistic or Gumbel noise; all classes at a loose tolerance |
| `mc` | random draws, as the papers do | never: ask for it |

With one or two factors a Gauss-Hermite rule over them goes around the quadrature. `predictive_variance` gives the
variance of the softmax without keeping draws. A temperature can be learned (`het:temperature=learned`, or any module as
the model's `temperature`) or chosen on validation log-likelihood (`compose.search`);
[what temperature does](temperature.md) is a page of its own.
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
        _speed(cpu, gpu),
        _growth(cpu, gpu),
        _errors(gpu),
        _low_rank(ranks),
    ]
    return "\n".join(line for part in parts for line in part).rstrip() + "\n"


def _speed(cpu: Sequence[Line], gpu: Sequence[Line]) -> Iterator[str]:
    yield "## Speed"
    yield ""
    yield "Forward and backward of the mean negative log-likelihood, against eager Monte Carlo with 1,000 samples; medians of alternated runs."
    yield ""
    yield "| device | rows x classes | tau | inputs | method | time, ms | faster | extra memory / inputs |"
    yield "|---|---|---:|---|---|---:|---:|---:|"
    for line in [*cpu, *gpu]:
        if line["what"] != "nll" or line["method"] == "eager":
            continue
        on_cpu = line.get("extra_mib") is None
        ms, faster = (line["cpu_ms"], line["faster_cpu"]) if on_cpu else (line["ms"], line["faster"])
        memory = "" if on_cpu else f"{line['extra_over_inputs']:.1f}"
        device = f"CPU, {line['threads']} thread" if on_cpu else "H200"
        yield (
            f"| {device} | {line['rows']:,} x {line['classes']:,} | {line['tau']:g} | {line['dtype']} | {line['method']} "
            f"| {ms:.2f} | {faster:.1f}x | {memory} |"
        )
    yield ""
    if cpu:
        first = cpu[0]
        yield (
            f"CPU: times of the processor, since the machine was busy (load {first['load']:g} on {first['cores']} cores); "
            f"torch {first['torch']}, {first['date']}: `{first['command']}`. Two threads on an idle machine have not been measured."
        )
    if gpu:
        yield (
            f"GPU: {gpu[0]['hardware']}, torch {gpu[0]['torch']}, {gpu[0]['date']}, inputs ready, between CUDA events. **These are the first "
            "kernels.** Since then the quadrature kernel takes half the nodes, a second launch replaces the way back to "
            "PyTorch for most rows that missed, and a call makes half as many launches; that version agrees with the "
            "reference in Triton's interpreter and compiles for this GPU, but has not been timed."
        )
    yield ""


def _growth(cpu: Sequence[Line], gpu: Sequence[Line]) -> Iterator[str]:
    yield "## Growth"
    yield ""
    yield f"![Time against classes and rows](pictures/{PICTURE.name}.svg)"
    yield ""
    for what, key in (("growth in classes", "classes"), ("growth in rows", "rows")):
        points = [line for line in cpu if line["what"] == what]
        if len(points) > 2:
            slope = _slope([p[key] for p in points[-3:]], [p["cpu_ms"] for p in points[-3:]])
            yield (
                f"CPU, {key} {points[0][key]:,} to {points[-1][key]:,}: {points[0]['cpu_ms']:.1f} to {points[-1]['cpu_ms']:.0f} ms; "
                f"the last three points grow with power {slope:.2f}."
            )
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
    yield "Root mean square error of log p over 512 rows, likely and unlikely labels alike."
    yield ""
    yield "| classes | tau | " + " | ".join(names) + " |"
    yield "|---:|---:|" + "---:|" * len(names)
    for line in lines:
        yield f"| {line['classes']} | {line['tau']:g} | " + " | ".join(f"{line[n]:.1e}" for n in names) + " |"
    yield ""


def _low_rank(lines: Sequence[Line]) -> Iterator[str]:
    if not lines:
        return
    yield "## Low-rank heads: where should the points go?"
    yield ""
    yield (
        "Given its R factors the classes are independent again. So: points over the factors around the exact integral, or "
        "quasi-random points over everything? Root mean square error of log p at equal cost of the processor, forward and "
        "backward; the cost is that of the largest set of points over everything. Reference: the first way with many points."
    )
    yield ""
    yield "| factors | classes | tau | cost, ms | everything | factors, product rule | factors, Sobol | reference's own error |"
    yield "|---:|---:|---:|---:|---:|---:|---:|---:|"
    won = dict.fromkeys(WAYS, 0)
    places = sorted({(x["rank"], x["classes"], x["tau"]) for x in lines})
    for place in places:
        here = [x for x in lines if (x["rank"], x["classes"], x["tau"]) == place]
        cost = sorted(x["ms"] for x in here if x["way"] == "everything")[-1]
        errors = {way: _at_cost([x for x in here if x["way"] == way], cost) for way in WAYS}
        best = min((w for w in WAYS if errors[w] is not None), key=lambda w: errors[w] or math.inf)
        won[best] += 1
        cells = " | ".join(
            "" if e is None else f"**{e:.1e}**" if w == best else f"{e:.1e}" for w, e in errors.items()
        )
        yield f"| {place[0]} | {place[1]} | {place[2]:g} | {cost:.0f} | {cells} | {here[0]['reference_error']:.0e} |"
    yield ""
    counts = ", ".join(f"{way} {count}" for way, count in won.items())
    yield (
        f"Best in so many of {len(places)} places: {counts}. An empty place: the smallest rule costs more than that. `auto` takes the product "
        f"rule up to two factors and points over everything beyond; its estimate of the error is then its standard error over replicates, "
        "and it says so where the tolerance is not met. In a batch of few rows the search for the place of the points weighs heavily "
        "against the factors; lines with 100 classes are by the clock of an idle machine."
    )
    first = lines[0]
    yield ""
    yield f"{first['hardware']}, torch {first['torch']}, {first['date']}; rows of the batch: {sorted({x['rows'] for x in lines})}. Again: `{first['command']}`."


def _at_cost(lines: Sequence[Line], cost: float) -> float | None:
    """The error at a cost, between the sizes measured on a doubly logarithmic line; beyond the largest, its own."""
    points = sorted((x["ms"], x["error"]) for x in lines)
    if not points or points[0][0] > cost:
        return None
    ms, error = np.log(np.array(points)).T
    return float(np.exp(np.interp(math.log(cost), ms, error)))


def picture(cpu: Sequence[Line], gpu: Sequence[Line]) -> Drawing:
    """Time against classes and rows, doubly logarithmic, with a line of slope 1."""
    figure, axes = sheet(1, 2, 8.4, 3.6)
    for ax, what, key in zip(axes[0], ("growth in classes", "growth in rows"), ("classes", "rows")):
        for how, (name, lines, time) in zip(
            LOOKS, (("CPU, one thread (processor's time)", cpu, "cpu_ms"), ("H200, first kernels", gpu, "ms"))
        ):
            points = [(x[key], x[time]) for x in lines if x["what"] == what]
            if points:
                ax.plot(*zip(*points), label=name, **how.line())
            if points and time == "cpu_ms":
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
