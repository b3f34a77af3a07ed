"""Mutation testing of the mathematical modules: change one thing, and see whether a test notices.

    python tools/mutate.py links penalties --jobs 2 --out mutation.jsonl
    python tools/mutate.py --all --jobs 16 --minutes 7 --limit 60 --out mutation.jsonl

torch and the test libraries are imported once; every mutant is then tried in a forked process of its own, which
imports dubito with the changed module and runs that module's tests until the first failure. A mutant that hangs,
dies or fails to import is noticed too. With --limit a random sample of each module is tried (of a fixed seed); with
--minutes no mutant is begun after that time, and the order is random, so that what was tried remains a fair sample.
With --known the lines of earlier runs are taken up: what was noticed then counts (tests are added, not taken away),
and what survived is tried again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT / "tests")]
# One thread each, and no compiled graphs: they say the same as the plain code and take a hundred times as long.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TORCHDYNAMO_DISABLE"):
    os.environ[variable] = "1"

from mutation_targets import TARGETS  # noqa: E402
from mutations import Mutant, mutants  # noqa: E402

PRELOAD = ["torch", "torch.nn.functional", "torch._dynamo", "numpy", "scipy.stats", "scipy.integrate"]
PRELOAD += [
    "hypothesis",
    "pytest",
    "mpmath",
    "safetensors.torch",
    "sklearn.base",
    "_pytest.assertion.rewrite",
]
SELECT = "not compil and not inductor and not vmap and not ungraphable"
KILLED, SURVIVED, SLOW, BROKEN = "killed", "survived", "timeout", "broken"


def module_path(module: str) -> Path:
    """The file of a module named as in `TARGETS`."""
    return ROOT / "src" / "dubito" / (module.replace(".", "/") + ".py")


def run_tests(module: str, tree: Any, tests: tuple[str, ...], log: Path) -> int:
    """In this process: import dubito with the changed module, run the tests until one fails; pytest's status."""
    import pytest

    name, path = f"dubito.{module}", str(module_path(module))
    plain = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> CodeType | None:
        return compile(tree, path, "exec") if tree is not None and fullname == name else plain(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    options = [
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--no-header",
        "--tb=line",
        "-k",
        SELECT,
    ]
    if "hypothesis" in sys.modules:
        options += ["--hypothesis-seed=0"]
    return int(pytest.main([*options, *tests]))


def fork(module: str, tree: Any, log: Path) -> int:
    """Start a process for one mutant; its number."""
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (12 << 30, 12 << 30))
        status = run_tests(module, tree, TARGETS[module], log)
    except BaseException:
        status = 3
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(status)


class Pool:
    """At most `jobs` processes at a time, each with a time limit."""

    def __init__(self, jobs: int, folder: Path) -> None:
        self.jobs, self.folder = jobs, folder
        self.running: dict[int, tuple[float, float, Any]] = {}

    def start(self, module: str, tree: Any, limit: float, what: Any) -> None:
        """Try one tree; `what` is given back with the verdict."""
        log = self.folder / f"{os.getpid()}-{time.monotonic_ns()}.log"
        pid = fork(module, tree, log)
        self.running[pid] = (time.monotonic(), limit, (what, log))

    def ended(self) -> list[tuple[Any, str, float]]:
        """Those that have ended since: (what, verdict, seconds)."""
        found = []
        for pid, (since, limit, (what, log)) in list(self.running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            seconds = time.monotonic() - since
            if not done and seconds < limit:
                continue
            if not done:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                verdict = SLOW
            else:
                code = os.waitstatus_to_exitcode(status)
                verdict = SURVIVED if code == 0 else KILLED if code != 5 else BROKEN
            del self.running[pid]
            log.unlink(missing_ok=True)
            found.append((what, verdict, seconds))
        return found

    def wait(self) -> list[tuple[Any, str, float]]:
        """As `ended`, once there is one."""
        while not (found := self.ended()):
            time.sleep(0.02)
        return found


def baselines(modules: list[str], pool: Pool) -> dict[str, float]:
    """Seconds that the tests of each module take on the unchanged code; a module whose tests fail is left out."""
    found: dict[str, float] = {}
    waiting = list(modules)
    while waiting or pool.running:
        while waiting and len(pool.running) < pool.jobs:
            module = waiting.pop()
            pool.start(module, None, 300, module)
        for module, verdict, seconds in pool.wait():
            if verdict == SURVIVED:
                found[module] = seconds
            else:
                sys.stderr.write(f"{module}: its tests do not pass unchanged ({verdict})\n")
    return found


def known(paths: list[Path]) -> dict[str, tuple[set[str], set[str]]]:
    """Per module the names of the mutants that were noticed, and of those that were not, in earlier lines."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for path in paths:
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "module" in line:
                noticed, survived = found.setdefault(line["module"], (set(), set()))
                noticed.update(line["noticed"])
                survived.update(s["mutant"] for s in line["survivors"])
    return found


def plan(
    modules: list[str], limit: int | None, seed: int, earlier: dict[str, tuple[set[str], set[str]]]
) -> list[tuple[str, Mutant]]:
    """The mutants to try, one module after another in turn: what survived earlier, then others in random order."""
    queues = []
    for module in modules:
        made = list(mutants(module_path(module).read_text(encoding="utf-8")))
        noticed, survived = earlier.get(module, (set(), set()))
        random.Random(f"{seed} {module}").shuffle(made)
        made.sort(key=lambda mutant: mutant.name not in survived)
        chosen = [m for m in made if m.name not in noticed]
        rest = None if limit is None else max(limit - len(noticed & {m.name for m in made}), len(survived))
        queues.append([(module, mutant) for mutant in chosen[:rest]])
    longest = max(map(len, queues), default=0)
    return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]


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
    parser.add_argument("--tests", nargs="*", help="try these in place of the module's own tests")
    parser.add_argument("--trust", type=float, help="seconds to assume for a module's tests, untried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per module")
    given = parser.parse_args()
    if given.tests:
        TARGETS.update(dict.fromkeys(TARGETS, tuple(given.tests)))
    since = time.time()
    for name in PRELOAD:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from scorecard_recorder import session

    given.out.parent.mkdir(parents=True, exist_ok=True)
    pool = Pool(given.jobs, given.out.parent)
    chosen = sorted(TARGETS) if given.all else given.modules
    times = dict.fromkeys(chosen, given.trust) if given.trust else baselines(chosen, pool)
    earlier = known(given.known)
    todo = plan([m for m in chosen if m in times], given.limit, given.seed, earlier)
    total = {m: len(list(mutants(module_path(m).read_text(encoding="utf-8")))) for m in times}
    found: dict[str, list[tuple[Mutant, str]]] = {m: [] for m in times}
    for module in found:
        made = mutants(module_path(module).read_text(encoding="utf-8"))
        found[module] += [(m, KILLED) for m in made if m.name in earlier.get(module, (set(),))[0]]
    head, told = session(since), 0.0
    while todo or pool.running:
        late = time.time() - since > 60 * given.minutes
        todo = [] if late else todo
        while todo and len(pool.running) < pool.jobs:
            module, mutant = todo.pop(0)
            pool.start(module, mutant.tree, max(20.0, 4 * times[module]), (module, mutant))
        if pool.running:
            for (module, mutant), verdict, _ in pool.wait():
                found[module].append((mutant, verdict))
        if time.time() - told > 5 or not (todo or pool.running):
            told = time.time()
            write(given.out, {**head, "seconds": round(told - since, 1)}, found, total, times)


def write(
    out: Path,
    head: dict[str, Any],
    found: dict[str, list[Any]],
    total: dict[str, int],
    times: dict[str, float],
) -> None:
    """One line for the session and one per module."""
    lines: list[dict[str, Any]] = [{"session": head}]
    for module in sorted(found):
        verdicts = [verdict for _, verdict in found[module]]
        survivors = [
            {"mutant": m.name, "line": m.line}
            for m, verdict in found[module]
            if verdict in (SURVIVED, BROKEN)
        ]
        lines.append(
            {
                "module": module,
                "mutants": total[module],
                "tried": len(verdicts),
                "killed": verdicts.count(KILLED),
                "timeouts": verdicts.count(SLOW),
                "noticed": sorted(m.name for m, verdict in found[module] if verdict in (KILLED, SLOW)),
                "survivors": sorted(survivors, key=lambda s: (s["line"], s["mutant"])),
                "tests": list(TARGETS[module]),
                "seconds_of_tests": round(times[module], 1),
            }
        )
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
