"""What the lines of benchmarks/audit.py say together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Gains over cleanlab; seeds of a cell are averaged, and cells are drawn anew for the interval."""
    generator = np.random.default_rng(0)
    names = list(dict.fromkeys(n for m in lines for n in m["peers"]))
    keys = sorted({(m["data"], m["noise"], m["model"]) for m in lines})
    out: dict[str, Any] = {"cells": len(keys), "runs": len(lines)}
    for peer in [*names, "the best of all, cell by cell"]:
        gains, used = [], []
        for key in keys:
            runs = [m for m in lines if (m["data"], m["noise"], m["model"]) == key]
            there = [n for n in names if n in runs[0]["peers"]]
            theirs = [max(np.mean([m["peers"][n] for m in runs]) for n in there)]
            if peer in names:
                if peer not in there:
                    continue
                theirs = [m["peers"][peer] for m in runs]
            used.append(key)
            gains.append(np.mean([m["average_precision"] for m in runs]) - np.mean(theirs))
        draws = generator.choice(gains, (2000, len(gains))).mean(1)
        worst = int(np.argmin(gains))
        out[peer] = {
            "mean_gain": round(float(np.mean(gains)), 4),
            "interval": [round(float(v), 4) for v in np.percentile(draws, [2.5, 97.5])],
            "worst": round(float(gains[worst]), 4),
            "worst_cell": "/".join(used[worst]),
            "cells": len(used),
        }
    for data in sorted({_group(m) for m in lines}):
        some = [m for m in lines if _group(m) == data]
        out[f"calibration error, {data}"] = round(float(np.mean([m["calibration_error"] for m in some])), 4)
        inside = [m["estimated_rate"][1] <= m["noise_rate"] <= m["estimated_rate"][2] for m in some]
        out[f"rate inside its interval, {data}"] = f"{sum(inside)} of {len(inside)}"
    return out


def _group(line: dict[str, Any]) -> str:
    """Kinds of cells whose calibration is told apart: on CIFAR-10N the models differ too much to be averaged."""
    return f"{line['data']}, {line['model']}" if line["data"] == "cifar10n" else line["data"]


def newest(path: Path) -> list[dict[str, Any]]:
    """The last line of every cell."""
    kept = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["kind_of_line"] == "cell":
            kept[line["data"], line["noise"], line["model"], line["seed"]] = line
    return list(kept.values())
