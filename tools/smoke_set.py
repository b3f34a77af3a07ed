"""What became of the nightly set: a line for each table and figure at smoke size.

    DUBITO_SMOKE_OUT=FOLDER python -m pytest -m nightly tests/papers/test_smoke_set.py
    python tools/smoke_set.py FOLDER > results/smoke/smoke_set.jsonl

A line says how many of the item's runs (those of its search included) are finished, what failed and why, which
forms of its table and which pictures were written, and the seconds of its runs on their hardware.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "papers"))

import smoke_runs  # noqa: E402

from dubito.papers import PAPERS, items, run_id  # noqa: E402
from dubito.papers.render import FORMATS  # noqa: E402
from dubito.papers.results import read  # noqa: E402
from dubito.papers.sweep import report  # noqa: E402


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    """One mapping for each table and figure, then the sums."""
    results = {r.id: r for r in read(folder / "results")}
    for paper in PAPERS:
        for key, entry in items(paper).items():
            name = f"{paper}.{key}"
            data = smoke_runs.SHAPES.get(name)
            made = [c for make in filter(None, (entry.make, entry.search)) for c in make("smoke", data, None)]
            configs = list({run_id(c): c for c in made}.values())
            found = report(configs, folder / "results")
            done = [results[run_id(c)] for c in found.finished]
            yield {
                "item": name,
                **({"data": data} if data else {}),
                "runs": len(configs),
                "finished": len(done),
                "failed": [f.cause for f in found.failed],
                "tables": [form for form in FORMATS if (folder / f"{name}.{form}.txt").is_file()],
                "pictures": [s for s in ("svg", "png") if (folder / "figures" / f"{name}.{s}").is_file()],
                "run_seconds": round(sum(r.seconds for r in done), 1),
            }
    found = report(smoke_runs.everything(), folder / "results")
    commits = Counter((r.commit, r.dirty) for r in results.values())
    yield {
        "item": "all",
        "runs": len(smoke_runs.everything()),
        "finished": len(found.finished),
        "failed": len(found.failed),
        "claims": [p for p in PAPERS if (folder / f"{p}.claims.txt").is_file()],
        "commits": [{"commit": commit, "dirty": dirty, "runs": n} for (commit, dirty), n in commits.items()],
        "dates": [f(r.date for r in results.values()) for f in (min, max)],
        "hardware": sorted({r.hardware for r in results.values()}),
        "torch": sorted({r.versions["torch"] for r in results.values()}),
    }


if __name__ == "__main__":
    for line in lines(Path(sys.argv[1])):
        sys.stdout.write(json.dumps(line) + "\n")
