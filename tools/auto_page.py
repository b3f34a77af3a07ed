"""Tables of docs/commands.md: the automatic choice beside cross-entropy, the defaults on small and on made tables.

From results/benchmarks/auto.jsonl and small_tables.jsonl.

python tools/auto_page.py            write it
python tools/auto_page.py --check    fail if the page is not what the lines say
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
LINES = HERE / "results" / "benchmarks" / "auto.jsonl"
PAGE = HERE / "docs" / "commands.md"
SEEDS = 5  # of every case, the first ones; further seeds of a case that was undecided do not count
SMALL_LINES = LINES.with_name("small_tables.jsonl")
# Heading -> which lines, and the name there.
COLUMNS = {
    "logistic regression": ("now", "logistic"),
    "random forest": ("now", "forest"),
    "classifier without decay": ("now", "nlc-0"),
    "classifier": ("now", "nlc"),
    "auto before": ("before", "auto"),
    "auto": ("now", "auto"),
}

MADE_COLUMNS = {
    "logistic regression": ("forest", "logistic"),
    "random forest": ("forest", "forest"),
    "gradient boosting": ("forest", "boosting"),
    "classifier before": ("slopes", "nlc"),
    "classifier": ("forest", "nlc"),
    "auto before": ("slopes", "auto"),
    "auto": ("forest", "auto"),
}
FEWEST_CASES = 3  # to speak of a mean gain
KINDS = {
    "thresholds": ("bands", "levels", "votes", "tariff"),
    "smooth": ("waves", "thirds", "shells", "blobs"),
}


def cells() -> dict[str, list[dict[str, Any]]]:
    """Case -> the newest line of each of the first seeds."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for text in LINES.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if line["seed"] >= SEEDS:
            continue
        found.setdefault(line["case"], {})[line["seed"]] = line
    return {case: list(seeds.values()) for case, seeds in sorted(found.items())}


def table() -> str:
    """Accuracy on true labels of held-out items, and the paired difference with its interval."""
    from scipy.stats import t

    out = [
        "| data and noise | seeds | cross-entropy | auto | difference | 95 % interval |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for case, lines in cells().items():
        d = np.array([line["difference"] for line in lines])
        error = d.std(ddof=1) / len(d) ** 0.5 * t.ppf(0.975, len(d) - 1)
        means = [f"{np.mean([line[m] for line in lines]):.3f}" for m in ("ce", "auto")]
        between = f"{d.mean() - error:+.3f} to {d.mean() + error:+.3f}"
        out.append(f"| {case} | {len(d)} | {' | '.join(means)} | {d.mean():+.3f} | {between} |")
    days = sorted({line["date"][:10] for lines in cells().values() for line in lines})
    said = " to ".join(dict.fromkeys([days[0], days[-1]]))
    which = f"Student's t over seeds 0 to {SEEDS - 1}, whatever they say"
    return "\n".join([*out, "", f"{which}; {said}; made by `python tools/auto_page.py`."])


def small_cells(
    columns: dict[str, tuple[str, str]] = COLUMNS,
) -> dict[str, dict[str, dict[int, dict[str, float]]]]:
    """Case -> heading -> seed -> accuracy and seconds, of the newest lines."""
    found: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    for text in SMALL_LINES.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        for heading, (code, name) in columns.items():
            if line["code"] == code and name in line:
                place = found.setdefault(f"{line['data']} {line['noise']}", {}).setdefault(heading, {})
                place[line["seed"]] = {"accuracy": line[name], "seconds": line[f"{name}_seconds"]}
    return found


def small_table() -> str:
    """Means over the seeds that every column has, and over all cases; the median seconds."""
    out = [f"| data and noise | seeds | {' | '.join(COLUMNS)} |", "|---|---:|" + "---:|" * len(COLUMNS)]
    means, seconds = [], []
    for case, found in small_cells().items():
        seeds = sorted(set.intersection(*(set(found.get(heading, {})) for heading in COLUMNS)))
        if not seeds:
            continue
        cells = [[found[heading][seed] for seed in seeds] for heading in COLUMNS]
        means.append([np.mean([c["accuracy"] for c in column]) for column in cells])
        seconds += [[column[k]["seconds"] for column in cells] for k in range(len(seeds))]
        out.append(f"| {case} | {len(seeds)} | {' | '.join(f'{m:.3f}' for m in means[-1])} |")
    out.append(f"| mean | | {' | '.join(f'{m:.3f}' for m in np.mean(means, axis=0))} |")
    out.append(
        f"| processor seconds, median | | {' | '.join(f'{m:.1f}' for m in np.median(seconds, axis=0))} |"
    )
    return "\n".join(out)


def made_table() -> str:
    """Each case, the means of both kinds, and what the classifier gains, with its interval over cases."""
    from scipy.stats import t

    out = [f"| table and noise | {' | '.join(MADE_COLUMNS)} |", "|---|" + "---:|" * len(MADE_COLUMNS)]
    found, gains = small_cells(MADE_COLUMNS), []
    for kind, names in KINDS.items():
        cases = {case: v for case, v in found.items() if case.split()[0] in names}
        mean = {
            case: {h: np.mean([c["accuracy"] for c in seeds.values()]) for h, seeds in v.items()}
            for case, v in cases.items()
        }
        for case in sorted(cases, key=lambda case: (case.split()[1:], names.index(case.split()[0]))):
            row = [f"{mean[case][h]:.3f}" if h in mean[case] else "" for h in MADE_COLUMNS]
            out.append(f"| {case} | {' | '.join(row)} |")
        for pair in (
            ("classifier", "classifier before"),
            ("classifier", "random forest"),
            ("auto", "auto before"),
        ):
            d = np.array([m[pair[0]] - m[pair[1]] for m in mean.values() if set(pair) <= m.keys()])
            if len(d) < FEWEST_CASES:
                continue
            error = d.std(ddof=1) / len(d) ** 0.5 * t.ppf(0.975, len(d) - 1)
            gains.append(
                f"| {kind} | {pair[0]} | {pair[1]} | {len(d)} | {d.mean():+.3f} | "
                f"{d.mean() - error:+.3f} to {d.mean() + error:+.3f} |"
            )
    times = {h: [c["seconds"] for v in found.values() for c in v.get(h, {}).values()] for h in MADE_COLUMNS}
    out.append(f"| processor seconds, median | {' | '.join(f'{np.median(v):.1f}' for v in times.values())} |")
    head = [
        "",
        "| tables | of | against | cases | mean gain | 95 % interval |",
        "|---|---|---|---:|---:|---|",
    ]
    return "\n".join([*out, *head, *gains])


def put(text: str, name: str, made: str) -> str:
    """A page with the part between the marks of this name made anew."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{made}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    new = put(put(put(text, "auto", table()), "small", small_table()), "made", made_table())
    if check:
        sys.exit(0 if new == text else f"{PAGE.name} is not what its lines say: run tools/auto_page.py")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
