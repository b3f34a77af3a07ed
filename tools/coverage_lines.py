"""Branch coverage of the mathematical modules, from a report of coverage.py to lines of results/reliability.

    pytest $(python tools/coverage_lines.py --tests) --cov=dubito --cov-branch --cov-report=json:build/coverage.json
    python tools/coverage_lines.py build/coverage.json --out results/reliability/coverage.jsonl

Ends with status 1 if a statement or a branch was not taken.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests")]

from mutation_targets import TARGETS  # noqa: E402

BESIDES = (
    "tests/reliability/test_last_branches.py",
    "tests/reliability/test_refused_arguments.py",
    "tests/integrals/test_routes_to_kernels.py",
)


def lines(report: dict[str, Any]) -> list[dict[str, Any]]:
    """One line per module: how many statements and branches there are, and which were not taken."""
    found = []
    for module in sorted(TARGETS):
        part = report["files"][f"src/dubito/{module.replace('.', '/')}.py"]
        found.append(
            {
                "covered": module,
                "statements": part["summary"]["num_statements"],
                "branches": part["summary"]["num_branches"],
                "missing_statements": part["missing_lines"],
                "missing_branches": part["missing_branches"],
            }
        )
    return found


def changed_since(report: dict[str, Any]) -> list[str]:
    """Modules that were written after the report: its lines would be filed under code that was not run."""
    then = datetime.datetime.fromisoformat(report["meta"]["timestamp"]).timestamp()
    paths = {m: ROOT / "src" / "dubito" / f"{m.replace('.', '/')}.py" for m in sorted(TARGETS)}
    return [module for module, path in paths.items() if path.stat().st_mtime > then]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("report", type=Path, nargs="?", help="coverage.json")
    parser.add_argument("--tests", action="store_true", help="print the test files and leave")
    parser.add_argument("--out", type=Path, help="JSON lines")
    given = parser.parse_args()
    if given.tests:
        sys.stdout.write(
            " ".join(sorted({*BESIDES, *(f for files in TARGETS.values() for f in files)})) + "\n"
        )
        return
    from scorecard_recorder import session

    report = json.loads(given.report.read_text(encoding="utf-8"))
    if newer := changed_since(report):
        sys.exit(f"{given.report} is older than {', '.join(newer)}: run the tests again")
    made = lines(report)
    if given.out is not None:
        head = {"session": session(time.time())}
        given.out.write_text("".join(json.dumps(line) + "\n" for line in (head, *made)), encoding="utf-8")
    for line in made:
        if line["missing_statements"] or line["missing_branches"]:
            sys.stdout.write(f"{line['covered']}: {line['missing_statements']} {line['missing_branches']}\n")
    sys.exit(any(line["missing_statements"] or line["missing_branches"] for line in made))


if __name__ == "__main__":
    main()
