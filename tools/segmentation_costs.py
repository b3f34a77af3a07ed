"""What heteroscedastic segmentation costs, as rows of a table, and what the aims make of it."""

from __future__ import annotations

from typing import Any

from segmentation_lines import lines

FASTER, STEP, MEMORY = 20.0, 1.3, 4.0  # link against 1,000 samples, step against the homoscedastic one, GB
SINCE = """
The links were measured with the present kernels, other work running on the host's processor; steps and memory with
those before, which took more than twice as long. The steps are to gain from that, which has not been measured.
"""
NETWORKS = {"compact": "compact network", "deeplab": "DeepLabv3+"}


def cost() -> list[str]:
    """Times and memory on the GPU, memory on the CPU."""
    rows = ["## Cost", "", "| what | size | figure |", "|---|---|---|"]
    found = [line for line in lines("cost.jsonl") if "what" in line]
    for line in found:
        rows.append({"link": _link, "step": _step, "memory": _memory}[line["what"]](line))
    for line in lines("memory.jsonl"):
        size = " x ".join(map(str, line["batch"]))
        figure = f"{line['beyond']:.2f} GB beyond the network's {line['network']:.2f}"
        other = f"one tensor of 1,000 samples: {line['one tensor of 1,000 samples']:.1f} GB"
        rows.append(
            f"| memory of a step on a CPU, {line['upsample']} enlarged | {size} | {figure}; {other} |"
        )
    return [*rows, "", *_aims(found), "", " ".join(SINCE.split())]


def _link(line: dict[str, Any]) -> str:
    took = line["milliseconds"]
    listed = ", ".join(f"{name} {value:.2f} ms" for name, value in took.items())
    ratios = ", ".join(
        f"samples / {name} {took['samples 1000'] / took[name]:.1f}x" for name in ("exact", "qmc 256")
    )
    if "gigabytes" in line:
        peaks = (f"{name} {line['gigabytes'][name]:.2f}" for name in ("exact", "samples 1000"))
        ratios += f"; GB {', '.join(peaks)}"
    return f"| link, τ = {line['tau']:g} | {line['rows']:,} x {line['classes']} | {listed}: {ratios} |"


def _step(line: dict[str, Any]) -> str:
    size = " x ".join(map(str, line["batch"]))
    ratios = ", ".join(f"{n} {v:.2f}x" for n, v in line["ratios"].items() if n != "homoscedastic")
    whole = line["milliseconds"]["homoscedastic"]
    return f"| whole step, {_network(line)} (homoscedastic {whole:.1f} ms) | {size} | {ratios} |"


def _network(line: dict[str, Any]) -> str:
    return NETWORKS[line.get("network", "compact")]


def _memory(line: dict[str, Any]) -> str:
    size = " x ".join(map(str, line["batch"]))
    took = line["gigabytes"]
    figure = f"{took['beyond']:.2f} GB beyond the network's {took['network']:.2f}"
    return f"| memory of a step on the GPU, {line['model']} | {size} | {figure} |"


def _aims(found: list[dict[str, Any]]) -> list[str]:
    """Which aims are met, from the lines alone."""

    def row(what: str, aim: str, values: dict[str, float], met: Any) -> str:
        if not values:
            return f"- {what} ({aim}): not measured."
        listed = ", ".join(f"{name} {value:.2f}" for name, value in values.items())
        word = "met" if all(met(v) for v in values.values()) else "missed"
        word = "met in part" if word == "missed" and any(met(v) for v in values.values()) else word
        return f"- {what} ({aim}): {word}; {listed}."

    links = {
        f"{line['rows']:,} x {line['classes']} at τ {line['tau']:g}": line["samples_over_exact"]
        for line in found
        if line["what"] == "link"
    }
    steps = {
        f"{_network(line)} {'x'.join(map(str, line['batch']))} {name.split(', ')[1]}": value
        for line in found
        if line["what"] == "step"
        for name, value in line["ratios"].items()
        if name in ("exact, tau 1", "exact, tau .05")
    }
    memory = {
        line["model"]: line["gigabytes"]["beyond"]
        for line in found
        if line["what"] == "memory" and line["model"] != "homoscedastic"
    }
    return [
        row("Exact link against 1,000 samples", "at least 20 times as fast", links, lambda v: v >= FASTER),
        row("Whole step", "at most 1.3 times the homoscedastic one's", steps, lambda v: v <= STEP),
        row("Memory beyond the network at 512 x 512 x 21", "below 4 GB", memory, lambda v: v < MEMORY),
    ]
