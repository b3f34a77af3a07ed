"""What the CamVid runs say, in words and as a curve, from the paired differences and nothing else."""

from __future__ import annotations

from pathlib import Path

from segmentation_lines import LABELS, Cell, best, cells, fullest, mean_and_half, told_apart

COMPARED = (
    ("mIoU", "mean_iou", 100.0, 2),
    ("boundary IoU", "boundary_iou", 100.0, 2),
    ("log-likelihood", "log_likelihood", 1.0, 3),
)
WHAT = "dashed: the homoscedastic model"
CAUTION = """
Each statement rests on a 95 % interval of its own, so that one in twenty would be told apart by chance, and the
runs are short. The paper's gain at τ = 0.05, about one point of mIoU, comes from a large network that was
pre-trained on private data.
"""


def which_way() -> list[str]:
    """Which temperatures are told apart from the homoscedastic model, under clean and noisy labels."""
    said = ["## Which way it goes", ""]
    for labels, name in LABELS.items():
        found = cells(labels, series=fullest())
        known = [tau for tau in found if tau is not None]
        if not known or None not in found:
            continue
        said += [_verdict(name, found), ""]
        said += [*_apart(found), ""]
    return [*said, " ".join(CAUTION.split()), ""] if len(said) > 2 else []


def _verdict(name: str, found: dict[float | None, Cell]) -> str:
    """The temperature that validation chooses and the paper's, in a sentence."""
    apart = told_apart(found, "mean_iou", 100.0)
    chosen = best(found)
    said = f"{name}: of {len(found) - 1} temperatures validation chooses τ = {chosen:g}"
    for tau, who in ((chosen, "it"), (0.05, "the paper's τ = 0.05")):
        if tau in apart:
            d, half = apart[tau]
            what = "is above" if d > half else "is below" if -d > half else "is not told apart from"
            said += f"; {who} {what} the homoscedastic model (test mIoU {d:+.2f} ± {half:.2f})"
    return f"{said}."


def _apart(found: dict[float | None, Cell]) -> list[str]:
    rows = []
    for what, key, scale, digits in COMPARED:
        apart = told_apart(found, key, scale)
        above = [tau for tau, (d, half) in apart.items() if d > half]
        below = [tau for tau, (d, half) in apart.items() if -d > half]

        def listed(taus: list[float], of: dict[float, tuple[float, float]] = apart, n: int = digits) -> str:
            return ", ".join(f"τ = {t:g} ({of[t][0]:+.{n}f} ± {of[t][1]:.{n}f})" for t in taus) or "none"

        rows.append(
            f"- Test {what}, seed by seed against the homoscedastic model: above it {listed(above)}; below it "
            f"{listed(below)}; {len(apart) - len(above) - len(below)} of {len(apart)} are not told apart from it."
        )
    return rows


def draw(path: Path) -> None:
    """Figure 2 of the paper for this set: mIoU against temperature, and log-likelihood beside it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "dubito"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), constrained_layout=True)
    for labels, colour in (("clean", "#1b6ca8"), ("border", "#c0392b")):
        found = cells(labels, series=fullest())
        for axis, key, scale in ((axes[0], "mean_iou", 100), (axes[1], "log_likelihood", 1)):
            of = {tau: [scale * r["test"][key] for r in cell.values()] for tau, cell in found.items()}
            taus = [tau for tau in of if tau is not None]
            means, halves = zip(*(mean_and_half(of[tau]) for tau in taus))
            shifted = [tau * (1.03 if labels == "border" else 0.97) for tau in taus]
            axis.errorbar(shifted, means, halves, fmt="o-", color=colour, label=LABELS[labels], capsize=2)
            for tau, place in zip(taus, shifted):
                axis.plot([place] * len(of[tau]), of[tau], ".", color=colour, alpha=0.4)
            plain, half = mean_and_half(of[None])
            axis.axhline(plain, color=colour, linestyle="--", linewidth=1)
            axis.axhspan(plain - half, plain + half, color=colour, alpha=0.08, linewidth=0)
    for axis, name in ((axes[0], "test mIoU (%)"), (axes[1], "test log-likelihood per pixel")):
        axis.set_xscale("log")
        axis.set_xlabel("temperature")
        axis.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2, 5], ["0.05", "0.1", "0.2", "0.5", "1", "2", "5"])
        axis.minorticks_off()
        axis.set_ylabel(name)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False, title=WHAT)
    figure.savefig(path, metadata={"Date": None})
