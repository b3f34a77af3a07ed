"""The process of tools/mutate.py that collects every test once and forks for everything else."""

from __future__ import annotations

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mutation_worker as worker
from mutations import Mutant

# Seconds of tests, as watched, that a mutant has to survive at first, and once all have been through that; what
# slower tests would notice as well is not counted.
QUICK, ENOUGH = 4.0, 20.0
# What notices a change of a default comes first for whatever runs at import.
SIGNATURES = "tests/reliability/test_signatures.py"
Tell = Callable[[str, Mutant, str, float], None]
Named = tuple[str, Mutant]


class Reached:
    """What was watched: the tests, the lines that each reaches, and the lines that run at import."""

    def __init__(self, tests: worker.Watched, at_import: dict[str, list[int]]) -> None:
        self.tests = tests
        self.at_import = {module: set(lines) for module, lines in at_import.items()}
        self.by_line: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for name, test in tests.items():
            for module, lines in test["lines"].items():
                for line in lines:
                    self.by_line[module][line].add(name)

    @classmethod
    def read(cls, path: Path) -> Reached:
        """As it was written by `serve`."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["tests"], found["at_import"])

    def reaching(self, module: str, lines: range | None) -> set[str]:
        """The tests that reach one of the lines."""
        return {name for line in lines or () for name in self.by_line[module].get(line, ())}

    def runs_at_import(self, module: str, mutant: Mutant) -> bool:
        """Whether the changed statement runs when the tests are collected."""
        return not set(mutant.statement or ()).isdisjoint(self.at_import.get(module, ()))

    def choose(self, module: str, mutant: Mutant, own: tuple[str, ...], enough: float) -> list[str]:
        """The tests that reach a mutant's statement (if none does, its function), in the order to run them.

        Quick ones first, of these the module's own; together they take at most `enough` seconds.
        """
        if mutant.statement:
            chosen = self.reaching(module, mutant.statement) or self.reaching(module, mutant.extent)
        else:
            edges = {name for name in self.tests if "tests/reliability/" in name}
            chosen = edges.union(*self.by_line[module].values())

        def rank(name: str) -> tuple[bool, int, bool, str, int]:
            seconds, file = self.tests[name]["seconds"], name.partition("::")[0]
            default = mutant.statement is None and file == SIGNATURES
            slow = int(seconds > 0.05) + int(seconds > 0.5)
            return not default, slow, file not in own, file, self.tests[name]["place"]

        names, total = [], 0.0
        for name in sorted(chosen, key=rank):
            total += self.tests[name]["seconds"]
            if not names or total < enough:
                names.append(name)
        return names


def watch(
    items: list[Any], plain: dict[str, Any], at_import: dict[str, list[int]], out: Path, jobs: int
) -> None:
    """Run every test file unchanged, once, to learn what its tests take and which statements they reach."""
    files: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    told = {file: out.with_name(f"watched-{i}.json") for i, file in enumerate(files)}

    def one(file: str) -> int:
        told[file].write_text(json.dumps(worker.watch(files[file], plain)), encoding="utf-8")
        return worker.PASSED

    tests: worker.Watched = {}

    def ended(file: str, _: int, seconds: float) -> None:
        found, failing = (
            json.loads(told[file].read_text(encoding="utf-8")) if told[file].is_file() else ({}, ["all"])
        )
        told[file].unlink(missing_ok=True)
        tests.update(found)
        sys.stderr.write(f"watched {file} in {seconds:.0f} s\n")
        if failing:
            sys.stderr.write(f"{file}: tests that do not pass unchanged: {failing}\n")

    slow_first = sorted(files, key=lambda f: ("integr" not in f, -len(files[f])))
    worker.side_by_side(((file, lambda f=file: one(f)) for file in slow_first), jobs, ended)
    part = out.with_name(out.name + ".tmp")
    part.write_text(json.dumps({"tests": tests, "at_import": at_import}), encoding="utf-8")
    part.replace(out)


class Server:
    """Tries mutants, at most `jobs` at a time, as long as it is not `late`."""

    def __init__(
        self, own: dict[str, tuple[str, ...]], jobs: int, late: Callable[[], bool], tell: Tell
    ) -> None:
        self.own, self.jobs, self.late, self.tell = own, jobs, late, tell
        self.left: list[Named] = []
        self.ready: set[str] = set()
        self.kept: set[str] = set()  # modules that made what is kept

    def __call__(
        self, files: list[str], todo: list[Named], plain: dict[str, Any], out: Path, log: Path
    ) -> int:
        """Collect the tests, watch them unless `out` says what was seen, and try what is to do."""
        trace = worker.Trace(plain)

        def work(items: list[Any]) -> None:
            at_import = trace.taken()
            worker.warm()
            self.kept = set(trace.taken())
            sys.settrace(None)
            gc.collect()
            gc.freeze()
            if not out.is_file():
                watch(items, plain, at_import, out, self.jobs)
            self.reached = Reached.read(out)
            self.by_name = {item.nodeid: item for item in items}
            worker.side_by_side(
                ((m, lambda m=m, t=t: int(not worker.can_stand_in(m, t))) for m, t in plain.items()),
                self.jobs,
                lambda module, status, _: None if status else self.ready.add(module),
            )
            worker.side_by_side(self.attempts(todo, 0.0, QUICK), self.jobs, self.ended)
            left, self.left = self.left, []
            worker.side_by_side(self.attempts(left, QUICK, ENOUGH), self.jobs, self.ended)

        sys.settrace(trace)
        return worker.collect(files, work, log)

    def attempts(
        self, todo: list[Named], begin: float, end: float
    ) -> Iterator[tuple[Any, Callable[[], int]]]:
        """One fork for each mutant, with the tests from second `begin` to `end`."""
        for module, mutant in todo:
            if self.late():
                return
            if module not in self.ready:
                self.tell(module, mutant, worker.AGAIN, 0.0)
                continue
            own = self.own[module]
            whole = self.reached.choose(module, mutant, own, end)
            done = set(self.reached.choose(module, mutant, own, begin) if begin else ())
            items = [self.by_name[n] for n in whole if n in self.by_name and n not in done]
            more = end < ENOUGH and len(self.reached.choose(module, mutant, own, ENOUGH)) > len(whole)
            yield (module, mutant, more), lambda m=module, t=mutant, i=items: self.survive(m, t, i)

    def survive(self, module: str, mutant: Mutant, items: list[Any]) -> int:
        """In a fork."""
        return worker.survive(module, mutant, items, self.reached.tests, module in self.kept)

    def ended(self, what: tuple[str, Mutant, bool], status: int, seconds: float) -> None:
        """Tell what came of a mutant."""
        module, mutant, more = what
        verdict = worker.word(status)
        if verdict == worker.SURVIVED and more:
            self.left.append((module, mutant))
        elif status == worker.UNPATCHED or (
            verdict == worker.SURVIVED
            and (mutant.statement is None or self.reached.runs_at_import(module, mutant))
        ):
            verdict = worker.AGAIN
        self.tell(module, mutant, verdict, seconds)
