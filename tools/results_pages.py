"""Write docs/results/ and docs/which-method.md from the result lines in results/, and from nothing else.

    python tools/results_pages.py            write the pages, the table in README.md and the picture
    python tools/results_pages.py --check    only say which pages are not up to date

No number on these pages is typed by hand.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from results_cells import Section, current, read_all, sections
from results_coverage import coverage, coverage_lines
from results_groups import all_places
from results_lines import backward_growth, silent_points
from results_paper import PICTURES, paper_page
from results_precision import precision_page
from results_readme import BEGIN, END, readme_table
from results_which import which_method
from results_which_words import which_method_data, which_method_table

from dubito.papers.configs import SIZES
from dubito.papers.results import Result, read

ROOT = Path(__file__).resolve().parents[1]
DOCS = Path("docs/results")
TABLE = Path("src/dubito/papers/which_method.json")  # read by `dubito.papers.which`


def pages(results: dict[str, list[Result]], notes: dict[str, list[str]] | None = None) -> dict[Path, str]:
    """Every page by its path below the repository."""
    found: dict[str, list[Section]] = {name: sections(name, runs) for name, runs in results.items()}
    said = notes or {}
    made = {
        DOCS / f"{name}.md": paper_page(name, results[name], found[name], said.get(name, ()))
        for name in results
    }
    made[DOCS / "coverage.md"] = coverage(results, found)
    results = {name: current(name, runs) for name, runs in results.items()}
    made[DOCS / "readme.md"] = readme_table(results)
    made[DOCS / "which-method.json"] = which_method_data(results)
    made[Path("docs/which-method.md")] = which_method(results)
    made[TABLE] = which_method_table(results)
    return made


def readme(text: str, table: str) -> str:
    """README.md with the table between its markers; as it was where there are none."""
    if BEGIN not in text or END not in text:
        return text
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    here = re.sub(r"\]\((?!\w+:)", f"]({DOCS.as_posix()}/", table.strip())
    return f"{head}{BEGIN}\n{here}\n{END}{tail}"


def everything(root: Path) -> dict[Path, str]:
    """The pages, and README.md where it has markers."""
    results = read_all(root / "results")
    made = pages(results, {name: _notes(root / "results" / name / "notes.txt") for name in results})
    if (root / "results/precision").is_dir():
        made[DOCS / "precision.md"] = precision_page(
            read(root / "results/precision"), results["englesson2023"]
        )
    lines = root / "results/benchmarks/silent_points.jsonl"
    silent = list(silent_points(lines, results.get("collier2020", ())))
    page = DOCS / "collier2020.md"
    if silent and page in made:
        made[page] += "\n" + "\n".join(silent) + "\n"
    growth = list(backward_growth(root / "results/benchmarks/backward_growth.jsonl"))
    page = DOCS / "lukasik2020.md"
    if growth and page in made:
        made[page] += "\n" + "\n".join(growth) + "\n"
    home = root / "README.md"
    if home.is_file():
        text = home.read_text(encoding="utf-8")
        made[Path("README.md")] = readme(text, made[DOCS / "readme.md"])
    return made


def _notes(path: Path) -> list[str]:
    """What the lines of a paper cannot say of themselves, a sentence on each line of the file."""
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


def stale(root: Path) -> list[str]:
    """The pages that do not say what the results say."""
    return [
        path.as_posix()
        for path, text in everything(root).items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]


def write(root: Path) -> list[Path]:
    """Write what changed, and the pictures; return the paths of the pages."""
    made = everything(root)
    for path, text in made.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    from dubito.papers import figures

    _write_gains(root, made)
    for name, (file, _) in PICTURES.items():
        paper = name.partition(".")[0]
        page = made.get(DOCS / f"{paper}.md", "")
        if f"({file}.svg)" in page:
            found = read(root / "results" / paper)
            sizes = {r.config.size for r in found if f"{paper}.{r.config.item}" == name}
            size = next(s for s in SIZES if s in sizes)
            figures.save(figures.picture(name, found, size=size), root / DOCS / file)
    return list(made)


def _write_gains(root: Path, made: dict[Path, str]) -> None:
    """The pictures of the page of methods."""
    from results_which_picture import FILES, picture

    from dubito.papers import figures

    results = {name: current(name, runs) for name, runs in read_all(root / "results").items()}
    for crowd, (file, _) in FILES.items():
        if f"({DOCS.name}/{file}.svg)" in made[Path("docs/which-method.md")]:
            figures.save(picture(all_places(results), crowd), root / DOCS / file)


def main() -> int:
    """Write or check."""
    if "--check" in sys.argv:
        old = stale(ROOT)
        sys.stdout.write("".join(f"not up to date: {path}\n" for path in old))
        return 1 if old else 0
    write(ROOT)
    results = read_all(ROOT / "results")
    lines = coverage_lines({name: sections(name, runs) for name, runs in results.items()})
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
