"""Sections from lines of benchmarks: readings of silent points, and how backward correction grows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dubito.papers.results import Result

FIRST = {"padded": False, "norm_eps": 1e-5}  # options of the network in the runs recorded first


def silent_points(path: Path, results: Sequence[Result] = ()) -> Iterator[str]:
    """Readings by round, best first, from the lines of benchmarks/silent_points.py; nothing without the file."""
    if not path.is_file():
        return
    rounds: dict[int, dict[str, list[dict[str, Any]]]] = {}
    about: dict[int, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        if row["kind"] == "about":
            about[row["round"]] = row
        else:
            rounds.setdefault(row["round"], {}).setdefault(row["reading"], []).append(row)
    yield from ("## Points on which the paper is silent", "")
    yield (
        "One run of plain training for each reading, CIFAR-10, noise of table 6; compared by accuracy on noisy "
        "validation labels, never by test labels. What is not named is as in the first reading: dropout by "
        "channel, last block unpadded, eps 1e-5, batch 128, Glorot's start, bfloat16 backbone, seed 0."
    )
    for number, rows in sorted(rounds.items()):
        yield from ("", f"Round {number}: `{about[number]['command']}`, {about[number]['hardware']}.", "")
        yield "| reading | noisy validation accuracy | log-likelihood there | its epoch | epochs run | end |"
        yield "|---|---:|---:|---:|---:|---|"
        found = [_summary(name, seen) for name, seen in (rows | _recorded(results)).items()]
        for summary in sorted((s for s in found if s), key=lambda s: -float(s[1])):
            yield f"| {' | '.join(summary)} |"
    twice = list(_twice([r for seen in rounds.values() for rows in seen.values() for r in rows], results))
    yield from twice
    yield from _company(path.with_name("company.jsonl")) if twice else ()


def _twice(rows: Sequence[dict[str, Any]], results: Sequence[Result]) -> Iterator[str]:
    """Readings that are a run of the table too, with the same seed: how far two such runs are from one another."""
    recorded = {r.id: r for r in results}
    names = ("validation_accuracy", "noisy_test_accuracy", "test_accuracy")
    for row in rows:
        twin = row.get("result") or {}
        run = recorded.get(twin.get("id", ""))
        if run:
            pairs = (f"{twin['metrics'][n]:.4f} and {run.metrics[n]:.4f} in `{n}`" for n in names)
            yield ""
            yield (
                f'The run of "{row["reading"]}" has config and seed of a run of {run.config.item} above, and '
                f"is not the same run bit for bit: here and there {', '.join(pairs)}. The table counts its own."
            )


def _company(path: Path) -> Iterator[str]:
    """What a run beside others has from them, from the lines of benchmarks/company.py."""
    rows = (
        [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )
    steps = [r for r in rows if r["kind"] == "steps"]
    masks = [r for r in rows if r["kind"] == "masks"]
    if not steps or not masks:
        return
    apart = max(max(r["apart"]["alone and beside"].values()) for r in steps)
    networks = ", ".join(f"{r['network']} {r['steps']} steps" for r in steps)
    yield ""
    yield (
        f"That the runs of the table shared the GPU is not the reason (`benchmarks/company.py`, "
        f"{rows[0]['hardware']}): without dropout the weights of a run alone and of the same run beside "
        f"{steps[0]['beside']} others are {f'{apart:.3g} apart' if apart else 'equal bit for bit'} ({networks}), "
        f"and of the dropout masks of {masks[0]['lanes']} runs side by side "
        f"{' and '.join(str(r['different']) for r in masks)} of {masks[0]['lanes'] * masks[0]['replays']} "
        f"(plain, fused) are different ones. What is left is the draw of the dropout, from the device's generator, "
        "and cuDNN's choice of algorithms. Two such runs are two draws of one method, but they are further apart "
        "than the seeds above: this stays open."
    )


def _recorded(results: Sequence[Result]) -> dict[str, list[dict[str, Any]]]:
    """The run of the first reading with seed 0, which is among the results, as lines of the benchmark."""
    for run in results:
        c = run.config
        where = (c.item, c.data, c.method, c.seed, c.batch, c.init, dict(c.network_options))
        if where == ("table6", "cifar10", "ce", 0, 128, "glorot", FIRST):
            names = ("validation_accuracy", "validation_log_likelihood")
            scores = zip(*(run.history[name] for name in names))
            rows: list[dict[str, Any]] = [
                {"kind": "epoch", "epoch": i, **dict(zip(names, pair))}
                for i, pair in enumerate(scores, start=1)
            ]
            end = {"kind": "end", "why": "ended by early stopping"}
            return {"the first reading, a run of table 6": [*rows, end]}
    return {}


def _summary(name: str, seen: list[dict[str, Any]]) -> tuple[str, ...]:
    epochs = [r for r in seen if r["kind"] == "epoch"]
    if not epochs:
        return ()
    best = max(epochs, key=lambda r: r["validation_accuracy"])
    end = next((r["why"] for r in seen if r["kind"] == "end"), "cut by time")
    if end == "cut by time" and best is epochs[-1]:
        end += ", still rising"
    return (
        name,
        f"{best['validation_accuracy']:.4f}",
        f"{best['validation_log_likelihood']:.3f}",
        str(best["epoch"]),
        str(len(epochs)),
        end,
    )


def backward_growth(path: Path) -> Iterator[str]:
    """One row for each alpha and type; nothing without the file."""
    if not path.is_file():
        return
    rows = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    yield from ("## Backward correction has no floor", "")
    yield (
        "The loss of backward correction is not bounded below: as soon as most of a batch is fitted, each step "
        "enlarges the logits, and through the last norm they enlarge the steps. A network of eight layers on 5,000 "
        "images, the paper's rate, momentum and decay, on a CPU (`python benchmarks/backward_growth.py`): the "
        "largest logit of a batch."
    )
    steps = sorted({_steps(row, i) for row in rows for i in range(1, len(row["largest_logit"]), 2)})
    yield from (
        "",
        f"| alpha | type | {' | '.join(f'step {s}' for s in steps)} |",
        f"|---|---|{'---:|' * len(steps)}",
    )
    for row in rows:
        seen = {_steps(row, i): v for i, v in enumerate(row["largest_logit"])}
        cells = (
            "" if s not in seen else "not a number" if seen[s] is None else f"{seen[s]:.2g}" for s in steps
        )
        yield f"| {row['alpha']:g} | {row['dtype']} | {' | '.join(cells)} |"


def _steps(row: dict[str, Any], i: int) -> int:
    return int(row["every"]) * (i + 1)
