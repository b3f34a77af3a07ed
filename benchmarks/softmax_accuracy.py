"""Errors of the expected softmax against stored reference values of independent code and mpmath.

    python benchmarks/softmax_accuracy.py --out results/benchmarks/softmax_accuracy.jsonl

One line of JSON per number of classes, temperature, type of the inputs and common shift of the means: the worst
error of log p (absolute where p is above e^-100, and of all rows relative to 1 + |log p|), the worst error of the
gradients in means, scales and temperature relative to the largest of the row's whole gradient (and of its kind),
how many rows are further off than they say, and the worst error of the target's probability when all classes are
asked for. The reference values are those of `softmax_references`.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dubito.integrals import expected_log_softmax, expected_softmax_nll

HERE = Path(__file__).resolve().parents[1]
CASES = ((torch.float64, 0.0), (torch.float32, 0.0), (torch.float32, 8192.0), (torch.bfloat16, 0.0))
_LEAST = -100.0  # of log p: below, its error is given relative to it only
_FLOOR = 1e-10  # gradients below it are not judged: p is 1 there


def largest(off: Tensor, size: Tensor) -> float:
    return float((off / size.clamp(min=_FLOOR)).max())


def measure(rows: list[dict[str, Any]], dtype: torch.dtype, shift: float, device: str) -> dict[str, Any]:
    """One line, for rows of one number of classes and one temperature."""

    def column(name: str) -> Tensor:
        return torch.tensor([row[name] for row in rows], dtype=torch.float64)

    wide = torch.float64 if dtype == torch.float64 else torch.float32
    target = torch.tensor([row["target"] for row in rows], device=device)
    mean, scale, tau = column("mean") + shift, column("scale"), column("tau").unsqueeze(-1)
    inputs = [x.to(device, kind).requires_grad_() for x, kind in ((mean, dtype), (scale, dtype), (tau, wide))]
    said: list[Any] = []
    options: dict[str, Any] = {"temperature": inputs[2], "report": said.append}
    losses = expected_softmax_nll(*inputs[:2], target, method="quadrature", reduction="none", **options)
    gradients = [-g.double().cpu() for g in torch.autograd.grad(losses.sum(), inputs)]
    wanted = [column("d_mean"), column("d_scale"), column("d_tau").unsqueeze(-1)]
    log_p = column("log_p")
    off = (losses.detach().double().cpu() + log_p).abs()
    whole = torch.cat(wanted, -1).abs().amax(-1)
    apart = [(a - b).abs().amax(-1) for a, b in zip(gradients, wanted)]
    every = expected_log_softmax(*inputs[:2], **options).detach().double().cpu()
    p_off = (every.gather(-1, target.cpu().unsqueeze(-1)).squeeze(-1).exp() - log_p.exp()).abs()
    line = {
        "classes": mean.shape[-1],
        "tau": rows[0]["tau"],
        "dtype": str(dtype).removeprefix("torch."),
        "shift": shift,
        "rows": len(rows),
        "least_log_p": float(log_p.min()),
        "error_log_p": float(torch.where(log_p > _LEAST, off, 0.0).max()),
        "error_log_p_relative": float((off / (1 + log_p.abs())).max()),
        "error_gradient": largest(torch.stack(apart).amax(0), whole),
        "further_off_than_said": int((off > said[0].error.double().cpu() + 1e-12).sum()),
        "error_p_of_all": float(p_off.max()),
        "further_off_than_said_of_all": int((p_off > said[1].error.double().cpu() + 1e-6).sum()),
    }
    for name, part, size in zip(("mean", "scale", "tau"), apart, wanted):
        line[f"error_in_{name}"] = largest(part, torch.maximum(size.abs().amax(-1), 1e-4 * whole))
    return line


def summary(line: dict[str, Any]) -> str:
    where = f"{line['classes']} classes, tau {line['tau']:g}, {line['dtype']}, shift {line['shift']:g}"
    found = ", ".join(f"{k.removeprefix('error_')} {line[k]:.1e}" for k in line if k.startswith("error_"))
    return f"{where}: {found}, further off than said {line['further_off_than_said']}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--references", type=Path, default=HERE / "results" / "benchmarks" / "softmax_references.jsonl"
    )
    args = parser.parse_args()
    sets: dict[tuple[int, float], list[dict[str, Any]]] = collections.defaultdict(list)
    for text in args.references.read_text().splitlines():
        row = json.loads(text)
        sets[len(row["mean"]), row["tau"]].append(row)
    about = {
        "command": "python benchmarks/softmax_accuracy.py "
        + " ".join(Path(word).name for word in sys.argv[1:]),
        "hardware": torch.cuda.get_device_name() if args.device == "cuda" else platform.machine(),
        "device": args.device,
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    with args.out.open("w") as f:
        for dtype, shift in CASES:
            for key in sorted(sets):
                line = measure(sets[key], dtype, shift, args.device)
                print(summary(line), flush=True)
                f.write(json.dumps(line | about) + "\n")
                f.flush()


if __name__ == "__main__":
    main()
