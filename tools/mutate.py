"""Mutation testing of the mathematical modules: change one thing, and see whether a test notices.

    python tools/mutate.py links penalties --jobs 2 --out mutation.jsonl
    python tools/mutate.py --all --jobs 7 --minutes 20 --out mutation.jsonl

torch and the test libraries are imported once and the tests collected once, in a process that forks for the rest
(mutation_server.py). First the tests are run unchanged, to learn what each takes and reaches; then every mutant is
tried against the tests that reach it, until the first failure. A mutant that hangs, dies or fails to import is
noticed; one that survives is tried again with the changed module imported from the beginning wherever that could
matter.
The mutants of all modules are tried in random order, so that what was tried when --minutes are over (or --limit per
module is reached) is a fair sample.
With --known the lines of earlier runs are taken up, as far as they are of functions that read as they did: what was
noticed then counts (tests are added, not taken away), and what survived is tried again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT / "tests")]
# One thread each, and no compiled graphs: they say the same as the plain code and take a hundred times as long.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHDYNAMO_DISABLE"):
    os.environ[variable] = "1"

import mutation_worker as worker  # noqa: E402
from mutation_known import Known, known  # noqa: E402
from mutation_server import Reached, Server  # noqa: E402
from mutation_targets import TARGETS  # noqa: E402
from mutations import Mutant, functions, mutants  # noqa: E402

PRELOAD = [
    "torch",
    "torch.nn.functional",
    "torch._dynamo",
    "numpy",
    "scipy.stats",
    "scipy.integrate",
    "pytest",
]
PRELOAD += [
    "hypothesis",
    "mpmath",
    "safetensors.torch",
    "sklearn.base",
    "_pytest.assertion.rewrite",
    "pandas",
]
# Seconds of tests for a mutant that is tried afresh.
AFRESH = 10.0


def beginning(since: float, modules: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is noted of the session, and a digest of every module."""
    from scorecard_recorder import digest, session

    return session(since), {m: digest([worker.module_path(m)], ROOT) for m in modules}


def apart(make: Callable[[], Any]) -> Any:
    """What a function gives (as JSON) in a process of its own: this one must not import what is mutated."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(told, json.dumps(make()).encode())
        os._exit(0)
    os.close(told)
    with os.fdopen(ready, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


class Run:
    """One run over some modules: what is to be tried, what was found, at most `jobs` processes at a time."""

    def __init__(self, given: argparse.Namespace, modules: list[str]) -> None:
        self.given, self.since = given, time.time()
        self.log = Path(f"{given.out}.log")
        self.told = Path(f"{given.out}.part")
        self.texts = {m: worker.module_path(m).read_text(encoding="utf-8") for m in modules}
        self.head, self.code = apart(partial(beginning, self.since, modules))
        self.made = {m: list(mutants(text)) for m, text in self.texts.items()}
        self.by_name = {m: {mutant.name: mutant for mutant in made} for m, made in self.made.items()}
        self.watched = given.watched or Path(f"{given.out}.watched")
        self.reached: Reached | None = None
        self.files = sorted({file for module in modules for file in TARGETS[module]} | set(given.beside))
        self.found: dict[str, dict[str, str]] = {m: {} for m in modules}
        self.running: dict[int, Any] = {}
        self.read, self.last = 0, 0.0

    def late(self) -> bool:
        """Whether nothing may be begun any more."""
        return time.time() - self.since > 60 * float(self.given.minutes)

    def tell(self, module: str, mutant: Mutant, verdict: str, seconds: float) -> None:
        """In a forked process: add a line that the first one reads; lines this short are written whole."""
        line = json.dumps(
            {"of": module, "mutant": mutant.name, "verdict": verdict, "seconds": round(seconds, 2)}
        )
        with self.told.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def listen(self) -> list[tuple[str, Mutant]]:
        """Take up what was told since; those that have to be tried afresh are given back."""
        if not self.told.is_file():
            return []
        lines = self.told.read_text(encoding="utf-8").splitlines()
        again = []
        for line in map(json.loads, lines[self.read :]):
            if line["verdict"] == worker.AGAIN:
                again.append((line["of"], self.by_name[line["of"]][line["mutant"]]))
            else:
                self.found[line["of"]][line["mutant"]] = line["verdict"]
        self.read = len(lines)
        return again

    def start_afresh(self, module: str, mutant: Mutant) -> None:
        """Try one mutant in a process that imports it from the beginning."""
        self.reached = self.reached or Reached.read(self.watched)
        names = self.reached.choose(module, mutant, TARGETS[module], AFRESH)
        tests = self.reached.tests
        pid = worker.fork(lambda: worker.attempt_afresh(module, mutant, tests, names, self.log))
        self.running[pid] = (module, mutant)

    def ended(self) -> None:
        """Tell what came of processes that have ended."""
        for pid in list(self.running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                what = self.running.pop(pid)
                if what is not None:
                    self.tell(*what, worker.word(os.waitstatus_to_exitcode(status)), 0.0)

    def all(self, todo: list[tuple[str, Mutant]]) -> None:
        """Try everything, or what can be tried in time; those tried afresh run beside."""
        afresh = max(1, self.given.jobs // 8)
        server = Server(TARGETS, self.given.jobs, self.late, self.tell)
        plain = {m: made[0].original for m, made in self.made.items() if made}
        main = worker.fork(lambda: server(self.files, todo, plain, self.watched, self.log))
        self.running[main] = None
        again: list[tuple[str, Mutant]] = []
        while again or self.running:
            if self.late():
                again = []
            while again and len(self.running) < (afresh + 1 if main in self.running else self.given.jobs):
                self.start_afresh(*again.pop(0))
            time.sleep(0.05)
            self.ended()
            again += self.listen()
            if time.time() - self.last > 5:
                self.last = time.time()
                self.write()

    def write(self) -> None:
        """One line for the session and one per module."""
        lines: list[dict[str, Any]] = [
            {"session": {**self.head, "seconds": round(time.time() - self.since, 1)}}
        ]
        for module, verdicts in sorted(self.found.items()):
            words = list(verdicts.values())
            survivors = [
                {"mutant": name, "line": self.by_name[module][name].line}
                for name, verdict in verdicts.items()
                if verdict == worker.SURVIVED
            ]
            lines.append(
                {
                    "module": module,
                    "code": self.code[module],
                    "functions": functions(self.texts[module]),
                    "mutants": len(self.made[module]),
                    "tried": len(words),
                    "killed": words.count(worker.KILLED),
                    "timeouts": words.count(worker.SLOW),
                    "noticed": sorted(
                        name for name, verdict in verdicts.items() if verdict != worker.SURVIVED
                    ),
                    "survivors": sorted(survivors, key=lambda s: (s["line"], s["mutant"])),
                    "tests": list(dict.fromkeys(TARGETS[module])),
                }
            )
        self.given.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def plan(
    made: dict[str, list[Mutant]], limit: int | None, seed: int, earlier: Known, repeat: bool
) -> list[tuple[str, Mutant]]:
    """Mutants in random order: what survived earlier, what was never tried and, with `repeat`, what was noticed."""
    turns: list[list[tuple[str, Mutant]]] = [[], [], []]
    for module, whole in made.items():
        noticed, survived = earlier.get(module, (set(), set()))
        old = [m for m in whole if m.name in survived - noticed]
        new = [m for m in whole if m.name not in survived | noticed]
        random.Random(f"{seed} {module}").shuffle(new)
        if limit is not None:
            new = new[: max(0, limit - len(old) - sum(m.name in noticed for m in whole))]
        for turn, some in zip(turns, (old, new, [m for m in whole if repeat and m.name in noticed])):
            turn += [(module, mutant) for mutant in some]
    for turn in turns:
        random.Random(seed).shuffle(turn)
    return [*turns[0], *turns[1], *turns[2]]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="as losses.robust, links")
    parser.add_argument("--all", action="store_true", help="every mathematical module")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, help="at most so many mutants of each module")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no mutant after this time")
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="lines of earlier runs")
    parser.add_argument(
        "--repeat", action="store_true", help="try what --known noticed once more, in the end"
    )
    parser.add_argument("--tests", nargs="*", help="try these in place of the module's own tests")
    parser.add_argument("--beside", nargs="*", default=[], help="try these test files as well")
    parser.add_argument("--watched", type=Path, help="what tests take and reach: read if there, else written")
    parser.add_argument("--only", default="", help="mutants whose name matches this regular expression")
    parser.add_argument("--merge", action="store_true", help="try nothing: put the lines of --known together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per module")
    given = parser.parse_args()
    if given.tests:
        TARGETS.update(dict.fromkeys(TARGETS, tuple(given.tests)))
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    run = Run(given, sorted(TARGETS) if given.all else given.modules)
    run.told.unlink(missing_ok=True)
    if given.watched is None:
        run.watched.unlink(missing_ok=True)
    earlier = known(given.known)
    for module, names in run.by_name.items():
        noticed, survived = earlier.get(module, (set(), set()))
        run.found[module] = dict.fromkeys(sorted(survived & names.keys()), worker.SURVIVED)
        run.found[module] |= dict.fromkeys(sorted(noticed & names.keys()), worker.KILLED)
    todo = plan(run.made, given.limit, given.seed, earlier, given.repeat)
    if not given.merge:
        run.all([(module, mutant) for module, mutant in todo if re.search(given.only, mutant.name)])
    run.write()


if __name__ == "__main__":
    main()
