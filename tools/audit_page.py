"""The figures of docs/audit.md from results/benchmarks/audit.jsonl: a table, and reliability curves.

python tools/audit_page.py            write them
python tools/audit_page.py --check    fail if the page is not what the lines say
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "benchmarks"), str(HERE / "docs" / "pictures")]
LINES = HERE / "results" / "benchmarks" / "audit.jsonl"
PEOPLE = HERE / "results" / "benchmarks" / "audit_people.jsonl"
PAGE = HERE / "docs" / "audit.md"
MARKS = ("<!-- audit:begin -->", "<!-- audit:end -->")
SIMULATED = ("<!-- simulated:begin -->", "<!-- simulated:end -->")
PEERS = {
    "self_confidence": "self-confidence",
    "issues by confident_learning": "confident learning",
    "pipeline": "CleanLearning",
}
GROUPS = {
    "digits": "digits",
    "mnist": "MNIST",
    "cifar10n, logistic": "CIFAR-10N, pixels, linear",
    "cifar10n, mlp": "CIFAR-10N, pixels, perceptron",
    "cifar10n, patches": "CIFAR-10N, patch features",
    "cifar10n, network": "CIFAR-10N, convolutional network",
}


def lines() -> list[dict[str, Any]]:
    """The newest line of every cell."""
    from audit_summary import newest

    return newest(LINES)


def table(cells: list[dict[str, Any]]) -> str:
    """Average precision and calibration by kind of data, gains over cleanlab below."""
    from audit_summary import _group, summary

    out = [
        "| data | labels wrong | model right | "
        + " | ".join(["audit", *PEERS.values()])
        + " | calibration error | 100 checked | 300 checked | wrong above 0.9 | wrong above 0.99 |",
        "|---|---:|---:|" + "---:|" * (len(PEERS) + 6),
    ]
    for key, name in GROUPS.items():
        some = [m for m in cells if _group(m) == key]
        if not some:
            continue
        numbers = [_mean([m["average_precision"] for m in some])]
        numbers += [_mean([m["peers"][p] for m in some if p in m["peers"]]) for p in PEERS]
        error = _mean([m["calibration_error"] for m in some])
        checked = [
            _mean([m["checked"][k]["calibration_error"] for m in some if k in m.get("checked", ())])
            for k in ("spot 100", "spot 300")
        ]
        shares = [f"{100 * np.mean([m[k] for m in some]):.0f} %" for k in ("noise_rate", "model_accuracy")]
        sure = [_pooled([m[k] for m in some if k in m]) for k in ("above_0.9", "above_0.99")]
        out.append(
            f"| {name} ({len(some)} runs) | " + " | ".join([*shares, *numbers, error, *checked, *sure]) + " |"
        )
    out += ["", *_gains(summary(cells))]
    versions = cells[0]["versions"]
    theirs = {
        m["versions"]["cleanlab"] for m in map(json.loads, LINES.read_text(encoding="utf-8").splitlines())
    }
    days = sorted({m["date"][:10] for m in cells})
    out += [
        "",
        f"{len(cells)} runs, cleanlab {', '.join(sorted(theirs - {'missing'}))}, scikit-learn "
        f"{versions['scikit-learn']}, {' to '.join(dict.fromkeys([days[0], days[-1]]))}; made by "
        f"`python tools/audit_page.py`. {_of_versions(cells, _group)}",
        *_of_people(),
    ]
    return "\n".join(out)


def _of_versions(cells: list[dict[str, Any]], group: Callable[[dict[str, Any]], str]) -> str:
    """Which runs are of which version of the audit, the newest first."""
    runs: dict[tuple[str, str], list[str]] = {}
    for m in cells:
        runs.setdefault((m["date"][:10], m.get("code") or "not recorded"), []).append(GROUPS[group(m)])
    if len({code for _, code in runs}) == 1:
        return "All runs are of one version of the audit."
    told = [
        f"{day} {code}: {', '.join(f'{names.count(n)} of {n}' for n in dict.fromkeys(names))}"
        for (day, code), names in sorted(runs.items(), reverse=True)
    ]
    return f"The runs are of different versions of the audit (date and fingerprint): {'; '.join(told)}."


def people() -> list[dict[str, Any]]:
    """Runs with three labels per image, the newest of each seed."""
    found = [json.loads(text) for text in PEOPLE.read_text(encoding="utf-8").splitlines()]
    return list({m["seed"]: m for m in found}.values())


def _of_people() -> list[str]:
    runs = people()
    mean = {k: _mean([m[k] for m in runs]) for k in ("calibration_error", "average_precision")}
    each = " and ".join(
        f"{100 * np.mean([m[k] for m in runs]):.1f} %" for k in ("estimated_rate", "noise_rate")
    )
    return [
        "",
        f"Where every image has all three of CIFAR-10N's human labels, and they are audited as a crowd "
        f"({len(runs)} runs of {runs[0]['labels']:,} labels with the same patch features): calibration error "
        f"{mean['calibration_error']}, average precision {mean['average_precision']}, estimated and true share "
        f"of wrong labels {each} (`python benchmarks/audit_people.py`, {runs[0]['date'][:10]}).",
    ]


def _pooled(counts: list[list[float]]) -> str:
    """The share of wrong labels among those that were called wrong with so much certainty."""
    total = sum(n for n, _ in counts)
    return f"{sum(n * share for n, share in counts) / total:.3f} of {total:,.0f}" if total else "none"


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f}" if values else ""


def _gains(found: dict[str, Any]) -> list[str]:
    out = [
        "| gain in average precision over | mean | 95 % interval | worst cell | where |",
        "|---|---:|---|---:|---|",
    ]
    for peer, name in {
        **PEERS,
        "the best of all, cell by cell": "the best of nine scores, cell by cell",
    }.items():
        if peer in found:
            f = found[peer]
            low, high = f["interval"]
            mean = f"{f['mean_gain']:+.3f}"
            out.append(
                f"| {name} | {mean} | {low:+.3f} to {high:+.3f} | {f['worst']:+.3f} | {f['worst_cell']} |"
            )
    return out


def simulated() -> str:
    """Calibration under simulated noise of every kind, from the lines of benchmarks/audit_simulated.py."""
    from audit_simulated import read
    from audit_simulated import summary as kinds

    names = {"none": "none", "symmetric": "symmetric", "pair": "pairwise", "input": "input-dependent"}
    cells = read()
    out = [
        "| simulated noise | cells | calibration error | 100 spread evenly checked | the 100 first checked |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind, f in kinds(cells).items():
        numbers = " | ".join(f"{f[k]:.3f}" for k in ("before", "spot 100", "top 100"))
        out.append(f"| {names[kind]} | {f['cells']:.0f} | {numbers} |")
    sets = ", ".join(dict.fromkeys(m["data"] for m in cells))
    days = " and ".join(sorted({m["date"][:10] for m in cells}))
    return "\n".join(
        [
            *out,
            "",
            f"Mean over {sets}, one seed each; softmax regression; {days}; "
            "`python benchmarks/audit_simulated.py`.",
        ]
    )


def draw(cells: list[dict[str, Any]]) -> None:
    """Share of wrong labels against p_wrong, one curve for each kind of data, without and with checked labels."""
    from style import GREY, panels, save

    human: dict[str, dict[str, str]] = {
        f"patch features, {name}": {"data": "cifar10n", "model": "patches", "noise": name}
        for name in ("aggre", "random1", "worst")
    }
    human["pixels, linear, aggre"] = {"data": "cifar10n", "model": "logistic", "noise": "aggre"}
    figure, places = panels(3, 2.9, 3.5)
    for place, title, groups, checked in (
        (places[0], "simulated noise", {"digits": {"data": "digits"}, "MNIST": {"data": "mnist"}}, False),
        (places[1], "human errors, CIFAR-10N", human, False),
        (places[2], "the same, 100 labels checked", human, True),
    ):
        place.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
        for name, facts in groups.items():
            said, true = _curve([m for m in cells if facts.items() <= m.items()], checked)
            if len(said):
                place.plot(said, true, "o-", markersize=4, label=name)
        if groups is human and not checked:
            said, true = _curve([{"checked": None, **m} for m in people()], False)
            place.plot(said, true, "s-", markersize=4, label="three labels per image")
        place.set(title=title, xlabel="p_wrong", ylabel="share wrong", xlim=(0, 1), ylim=(0, 1))
        place.legend(fontsize=7)
    save(figure, "audit")


def _curve(cells: list[dict[str, Any]], checked: bool) -> tuple[Any, Any]:
    """Mean p_wrong and share of wrong labels in ten bins, over some runs of the present audit."""
    some = [m["checked"]["spot 100"] if checked else m for m in cells if "checked" in m]
    bins = np.array([b for m in some for b in m["bins"]]).reshape(-1, 3)
    where = np.minimum((10 * bins[:, 1]).astype(int), 9)
    size = np.bincount(where, bins[:, 0], 10)
    kept = size > 30
    said, true = (np.bincount(where, bins[:, 0] * bins[:, c], 10)[kept] / size[kept] for c in (1, 2))
    return said, true


def _between(text: str, marks: tuple[str, str], new: str) -> str:
    head, _, rest = text.partition(marks[0])
    return f"{head}{marks[0]}\n{new}\n{marks[1]}{rest.partition(marks[1])[2]}"


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    new = _between(_between(text, MARKS, table(lines())), SIMULATED, simulated())
    if check:
        sys.exit(0 if new == text else f"{PAGE.name} is not what {LINES.name} says: run tools/audit_page.py")
    PAGE.write_text(new, encoding="utf-8")
    draw(lines())


if __name__ == "__main__":
    main()
