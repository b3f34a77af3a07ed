"""What happens inside the forked processes of tools/mutate.py: tests are collected once, mutants tried one by one.

`Server` collects every test, then forks: once per test file, unchanged, to note what each test takes and which
lines of the modules it reaches, and once per mutant. That fork puts the changed functions in the place of the old
ones, runs the tests that reach the changed statement, quick ones first, and ends at the first failure. A survivor
whose statement runs at import as well is tried again by `attempt_afresh`, which imports the changed module from the
beginning, so that nothing that was computed at import can hide it.
"""

from __future__ import annotations

import importlib.machinery
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from mutation_patch import UnpatchableError, patch
from mutations import Mutant

ROOT = Path(__file__).resolve().parents[1]
SELECT = "not compil and not inductor and not vmap and not ungraphable"
OPTIONS = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "--no-header", "--tb=line"]
KILLED, SURVIVED, SLOW, AGAIN = "killed", "survived", "timeout", "again"
# Exit status of a fork: some test failed, none did, the change cannot be put in place of a running module.
FAILED, PASSED, UNPATCHED = 1, 0, 7
Watched = dict[str, dict[str, Any]]


def module_path(module: str) -> Path:
    """The file of a module named as in `TARGETS`."""
    return ROOT / "src" / "dubito" / (module.replace(".", "/") + ".py")


def fork(work: Callable[[], int]) -> int:
    """Run `work` in a process of its own, whose exit status it gives; the number of that process."""
    pid = os.fork()
    if pid:
        return pid
    status = FAILED
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
        status = work()
    except BaseException:
        status = FAILED
    finally:
        os._exit(status)


def side_by_side(
    work: Iterable[tuple[Any, Callable[[], int]]], jobs: int, ended: Callable[[Any, int, float], None]
) -> None:
    """Fork for each piece of work, at most `jobs` at a time, and tell what came of it: name, status, seconds."""
    running: dict[int, tuple[Any, float]] = {}

    def one() -> None:
        pid, status = os.wait()
        if pid in running:
            name, since = running.pop(pid)
            ended(name, os.waitstatus_to_exitcode(status), time.monotonic() - since)

    for name, piece in work:
        running[fork(piece)] = (name, time.monotonic())
        while len(running) >= jobs:
            one()
    while running:
        one()


def word(status: int) -> str:
    """The verdict that an exit status stands for."""
    return SURVIVED if status == PASSED else SLOW if status == -signal.SIGALRM else KILLED


def warm() -> None:
    """Make what many tests need and none changes, so that not every process has to: the tables of the integrals."""
    import torch

    from dubito.integrals import grid, table

    for dtype in (torch.float64, torch.float32):
        table.table(torch.device("cpu"), dtype)
    grid.grid()


def forget() -> None:
    """Whatever the project has kept from earlier calls is made anew from here on."""
    for name, module in list(sys.modules.items()):
        if name.startswith("dubito"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


class Loop:
    """A plugin that takes the place of pytest's loop over the tests."""

    def __init__(self, work: Callable[[list[Any]], None]) -> None:
        self.work = work

    def pytest_runtestloop(self, session: Any) -> bool:
        """Hand the collected tests to `work`."""
        try:
            self.work(session.items)
        except BaseException:
            traceback.print_exc()
            raise
        return True


def collect(tests: Iterable[str], work: Callable[[list[Any]], None], log: Path) -> int:
    """Collect the tests in this process and hand them to `work`."""
    import hypothesis
    import pytest

    phases = (
        hypothesis.Phase.explicit,
        hypothesis.Phase.generate,
    )  # a failure is enough: it need not be small
    hypothesis.settings.register_profile("mutation", deadline=None, database=None, phases=phases)
    hypothesis.settings.load_profile("mutation")
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    given = [*OPTIONS, "-k", SELECT, "--hypothesis-seed=0"]
    return int(pytest.main([*given, *dict.fromkeys(tests)], plugins=[Loop(work)]))


def run(items: list[Any], watched: Watched | None = None) -> Iterator[tuple[Any, bool, bool]]:
    """Run tests: (test, whether it failed, whether it was skipped) of each; `watched` says when one hangs."""
    from _pytest.runner import runtestprotocol

    for item, following in zip(items, [*items[1:], None]):
        if watched is not None:
            signal.setitimer(signal.ITIMER_REAL, max(15.0, 10 * watched[item.nodeid]["seconds"]))
        reports = runtestprotocol(item, log=False, nextitem=following)
        yield item, any(r.failed for r in reports), any(r.skipped for r in reports)


class Trace:
    """Notes which lines of some files are executed."""

    def __init__(self, modules: Iterable[str]) -> None:
        self.modules = {str(module_path(module)): module for module in modules}
        self.lines: dict[str, set[int]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        """Called for every frame that begins."""
        module = self.modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        lines = self.lines.setdefault(module, set())

        def inside(frame: FrameType, event: str, _: Any) -> Any:
            lines.add(frame.f_lineno)
            return inside

        return inside(frame, event, None)

    def taken(self) -> dict[str, list[int]]:
        """What was noted since the last time."""
        found, self.lines = {module: sorted(lines) for module, lines in self.lines.items()}, {}
        return found


def can_stand_in(module: str, tree: Any) -> bool:
    """Whether the module is imported and can be put in its own place; some things can be made only once."""
    if f"dubito.{module}" not in sys.modules:
        return False
    try:
        patch(module, tree, str(module_path(module)))
    except Exception:
        traceback.print_exc()
        return False
    return True


def watch(items: list[Any], plain: dict[str, Any]) -> tuple[Watched, list[str]]:
    """Run tests with every module in its own place: seconds and lines of those that pass, names of the others."""
    trace = Trace(plain)
    forget()
    for module, tree in plain.items():
        can_stand_in(module, tree)
    found: Watched = {}
    left: list[str] = []
    steps = run(items)
    signal.setitimer(signal.ITIMER_REAL, 600)  # a file that hangs is left out
    while True:
        since = time.monotonic()
        sys.settrace(trace)
        step = next(steps, None)
        sys.settrace(None)
        if step is None:
            return found, left
        item, failed, skipped = step
        lines = trace.taken()
        if failed or skipped:
            left += [item.nodeid] * failed
            continue
        seconds = round(time.monotonic() - since, 4)
        found[item.nodeid] = {"seconds": seconds, "lines": lines, "place": len(found)}


def survive(module: str, mutant: Mutant, items: list[Any], watched: Watched, anew: bool) -> int:
    """In a fork: put the change in place and run the tests until one fails; with `anew`, nothing kept is used."""
    try:
        patch(module, mutant.tree, str(module_path(module)), expect_change=True)
    except UnpatchableError:
        return UNPATCHED
    if anew:
        forget()
    return FAILED if any(failed for _, failed, _ in run(items, watched)) else PASSED


def attempt_afresh(module: str, mutant: Mutant, watched: Watched, names: list[str], log: Path) -> int:
    """In a process of its own: import the changed module from the beginning and run the named tests."""
    path, name = str(module_path(module)), f"dubito.{module}"
    plain = importlib.machinery.SourceFileLoader.get_code
    failures: list[str] = []

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return compile(mutant.tree, path, "exec") if fullname == name else plain(self, fullname)

    def work(items: list[Any]) -> None:
        by_name = {item.nodeid: item for item in items}
        chosen = [by_name[n] for n in names if n in by_name]
        if 2 * len(chosen) < len(names):
            failures.append("its tests are no longer made")
        if any(failed for _, failed, _ in run(chosen, watched)):
            failures.append("a test fails")

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    signal.setitimer(signal.ITIMER_REAL, 120)
    status = collect(dict.fromkeys(n.partition("::")[0] for n in names), work, log)
    return FAILED if failures or status not in (0, 5) else PASSED
