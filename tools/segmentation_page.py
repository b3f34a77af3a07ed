"""The page of CamVid results, from the lines under results/segmentation and nothing else.

python tools/segmentation_page.py            writes docs/results/camvid.md and camvid.svg
python tools/segmentation_page.py --check    fails if the page is not what the lines say
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from segmentation_costs import cost
from segmentation_lines import (
    EARLIER,
    LABELS,
    LOOP,
    NOW,
    ROOT,
    SCORES,
    Cell,
    best,
    cells,
    finished,
    fullest,
    interval,
    lines,
    paired,
    scores,
)
from segmentation_words import draw, which_way

from dubito.metrics import paired_t_test

PAGE = ROOT / "docs" / "results" / "camvid.md"
SETTING = """
Images of 180 x 240, batches of 16 with scale, crop and flip, Adam with a polynomial rate. All models of a seed
share start, order and augmentation. The integral is exact, at a quarter of the resolution; log-probabilities are
enlarged. Intervals are Student's at 95 % over seeds. The test labels are clean; validation labels are as noisy as
the training labels, and choose the temperature. The paper has no figures for this set.
"""
SERIES = (
    ("compact", NOW, "The compact encoder-decoder from random weights"),
    ("deeplab", NOW, "DeepLabv3+, output stride 16, on an EfficientNet-Lite0 from ImageNet"),
    ("compact", LOOP, "The compact encoder-decoder, one seed by the plain loop"),
    ("compact", EARLIER, "The compact encoder-decoder, borders drawn as before commit `9fdd768`"),
)
HEAD = "seeds | validation mIoU | test mIoU | test boundary IoU | test log-likelihood | test ECE |"


def table(labels: str, network: str = "compact", series: str = NOW) -> list[str]:
    """All temperatures under one kind of labels, and what they differ by."""
    found = cells(labels, network, series=series)
    if not found or None not in found or len(found) < 2:
        return []
    chosen = best(found)
    rows = [f"### {LABELS[labels]}", "", f"| model | {HEAD}", "|---" * 7 + "|"]
    for tau, cell in found.items():
        name = (
            "homoscedastic"
            if tau is None
            else f"τ = {tau:g}" + (" (chosen)" if tau == chosen and len(cell) > 1 else "")
        )
        of = [cell[seed] for seed in sorted(cell)]
        rows.append(f"| {name} | {len(of)} | {interval([r['val']['mean_iou'] for r in of])} | {scores(of)} |")
    return [*rows, "", *differences(found, chosen), ""]


def differences(found: dict[float | None, Cell], chosen: float) -> list[str]:
    """Paired by seed: the chosen temperature, 1 and the paper's against the homoscedastic model."""
    said = []
    for tau in dict.fromkeys((chosen, 1.0, 0.05)):
        if tau in found:
            said += paired(f"τ = {tau:g} minus homoscedastic", found[tau], found[None])
    if chosen != 1.0 and 1.0 in found:
        said += paired(f"τ = {chosen:g} minus τ = 1", found[chosen], found[1.0])
    for what, key, *_ in SCORES if len(found[None]) > 1 else ():
        means = {m: statistics.mean(r["test"][key] for r in cell.values()) for m, cell in found.items()}
        top = max(means, key=lambda m: means[m])
        name = "the homoscedastic model" if top is None else f"τ = {top:g}"
        said.append(f"- Highest mean test {what}: {name} ({len(found[top])} seeds).")
    return said


def enlarged() -> list[str]:
    """What enlarging at another place brings on CamVid, paired by seed."""
    forms = {where: cells("border", upsample=where) for where in ("log_probs", "latent", "features")}
    taus = [tau for tau in forms["latent"] if tau is not None and all(tau in f for f in forms.values())]
    if not taus:
        return []
    rows = [
        "## Where to enlarge, on CamVid",
        "",
        "CamVid with noisy borders, the compact network. The paper enlarges log-probabilities; the other two "
        f"forms, means and scales (latent) or features, integrate at full size{_by_points(forms)}.",
        "",
        f"| enlarged | {HEAD} seconds of training, side by side |",
        "|---" * 8 + "|",
    ]
    said = []
    for tau in taus:
        for where, found in forms.items():
            of = [found[tau][seed] for seed in sorted(found[tau])]
            took = statistics.mean(r["train_seconds"] for r in of)
            valid = interval([r["val"]["mean_iou"] for r in of])
            name = f"{where.replace('_', '-')}, τ = {tau:g}"
            rows.append(f"| {name} | {len(of)} | {valid} | {scores(of)} | {took:.0f} |")
        for where in ("latent", "features"):
            name = f"{where} minus log-probabilities, τ = {tau:g}"
            said += paired(name, forms[where][tau], forms["log_probs"][tau])
    return [*rows, "", *said, ""]


def _by_points(forms: dict[str, dict[float | None, Cell]]) -> str:
    """How the full-size forms were integrated, where it was not exactly."""
    runs = [r for where in ("latent", "features") for cell in forms[where].values() for r in cell.values()]
    points = sorted({r["points"] for r in runs if "points" in r})
    listed = " or ".join(map(str, points))
    return (
        f", by {listed} quasi-random points drawn anew at each step, and are scored exactly" if points else ""
    )


def places() -> list[str]:
    """What enlarging at another place brings, on small scenes, paired by seed."""
    found: dict[str, Cell] = {}
    for line in lines("places.jsonl"):
        found.setdefault(line["form"], {})[line["seed"]] = line
    seeds = sorted(set.intersection(*(set(cell) for cell in found.values()))) if len(found) == 4 else []
    if len(seeds) < 3:
        return []
    one = next(iter(found["latent"].values()))
    rows = [
        "",
        "## Where to enlarge, on small scenes",
        "",
        f"Small scenes on a CPU (`benchmarks/segmentation_places.py`), {one['steps']} steps, τ = {one['tau']:g}, "
        f"{len(seeds)} seeds, noisy borders in training, clean test masks. The paper enlarges log-probabilities; "
        "the other two forms integrate at full size.",
        "",
        "| enlarged | test mIoU | test boundary IoU | test log-likelihood | CPU seconds |",
        "|---|---|---|---|---|",
    ]
    for form, cell in found.items():
        of = [cell[seed] for seed in seeds]
        rows.append(
            f"| {form.replace('_', '-')} | {interval([r['test']['mean_iou'] for r in of])} "
            f"| {interval([r['test']['boundary_iou'] for r in of])} "
            f"| {interval([r['test']['log_likelihood'] for r in of], 3, 1.0)} "
            f"| {statistics.mean(r['cpu_seconds'] for r in of):.1f} |"
        )
    for form in ("latent", "features"):
        pair = [[found[f][s]["test"]["mean_iou"] * 100 for s in seeds] for f in (form, "log_probs")]
        test = paired_t_test(*pair)
        said = f"mIoU {test.difference:+.2f} (p = {test.p:.2f})"
        rows += [""] * (form == "latent") + [f"- {form} minus log-probabilities, {len(seeds)} seeds: {said}."]
    return rows


def again() -> list[str]:
    """Whether code that changed since gives what it gave: the runs on small scenes, then and now."""
    now, then = (
        {(line["form"], line["seed"]): line for line in lines(name)}
        for name in ("places.jsonl", "places-earlier.jsonl")
    )
    pairs = [(now[key], then[key]) for key in now if key in then and now[key]["steps"] == then[key]["steps"]]
    if not pairs:
        return []
    most = {
        k: max(abs(a["test"][k] - b["test"][k]) for a, b in pairs) for k in ("mean_iou", "log_likelihood")
    }
    before, after = pairs[0][1]["date"], pairs[0][0]["date"]
    return [
        "",
        f"These are runs of {after}. The same {len(pairs)} runs with the code of {before} differ from them by at "
        f"most {100 * most['mean_iou']:.2f} in mIoU and {most['log_likelihood']:.4f} in log-likelihood. The runs "
        "on CamVid were not made again: what came after them (masks merged, masks judged out of fold, scores of a "
        "run on folders) takes no part in them.",
    ]


def page() -> str:
    """The whole page."""
    made = [
        "# Segmentation of CamVid",
        "",
        "<!-- made by tools/segmentation_page.py from results/segmentation; not edited by hand -->",
        "",
        " ".join(SETTING.split()),
        "",
        f"![mIoU and log-likelihood against the temperature](camvid.svg)\n\n{_drawn()}",
        "",
    ]
    made += which_way()
    for network, series, name in SERIES:
        runs = [line for line in finished(series) if line["network"] == network]
        body = [text for labels in LABELS for text in table(labels, network, series)]
        if body:
            steps = " or ".join(str(n) for n in sorted({line["steps"] for line in runs}))
            made += [f"## {name}, {steps} steps", "", *_told(runs), "", *body]
    return "\n".join([*made, *enlarged(), *cost(), *places(), *again(), *pictures(), ""])


def _told(runs: list[dict[str, Any]]) -> list[str]:
    """Where and how the runs of a section were made."""
    told = []
    for script, some in (
        ("segmentation", [line for line in runs if "lanes" not in line]),
        ("segmentation_lanes", [line for line in runs if "lanes" in line]),
    ):
        if not some:
            continue
        one, dates = some[0], sorted({line["date"] for line in some})
        at_once = f"{one['lanes']} streams" if "lanes" in one else f"{one['workers']} processes"
        told.append(
            f"{len(some)} runs on one {one['device']} (torch {one['torch']}, "
            f"{' to '.join(dict.fromkeys((dates[0], dates[-1])))}), {at_once} side by side; "
            f"`benchmarks/{script}.py`."
        )
        missed = max((line.get("missed", 0.0) for line in some), default=0.0)
        if "lanes" in one:
            told[-1] += (
                f" At most {100 * missed:.2g} % of the integrals of a run were left above the tolerance."
                if missed
                else " No integral of a step was left above the tolerance."
            )
    return [" ".join(told)]


def _drawn() -> str:
    steps = sorted({line["steps"] for line in finished(fullest()) if line["network"] == "compact"})
    listed = " or ".join(map(str, steps))
    return f"Runs of the compact network with {listed} steps; dots are seeds, bars and bands 95 % intervals."


def pictures() -> list[str]:
    """Figures 3 and 4 of the paper for this set, where they were drawn."""
    made = []
    for name, what in (
        ("masks", "Segmentations by three models"),
        ("variance", "Standard deviations by class"),
    ):
        if (PAGE.parent / f"camvid-{name}.png").exists():
            made += ["", f"![{what}, good and bad cases](camvid-{name}.png)"]
    options = "--data camvid --size small"
    told = (
        f"Figures 3 and 4 of the paper for this set, the compact network, clean labels, first seed: `dubito paper "
        f"run collier2020.figure3 {options}`, then `dubito paper figure collier2020.figure3 {options}` and so "
        "for figure4. The photographs and true masks of the set, which may not be passed on with this project, are "
        "painted over below, and the result files that hold them are not kept here."
    )
    return ["", "## Pictures", "", told, *made] if made else []


def main() -> None:
    """Write or check."""
    made = page()
    if "--check" in sys.argv[1:]:
        raise SystemExit(
            0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == made else f"{PAGE} is out of date"
        )
    PAGE.write_text(made, encoding="utf-8")
    draw(PAGE.with_suffix(".svg"))


if __name__ == "__main__":
    main()
