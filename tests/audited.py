"""What a test lets the process do: an audit hook sees every program started and every file opened for writing."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RUNS = {
    *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.startfile"),
    *("subprocess.Popen", "pty.spawn", "ctypes.dlopen", "socket.connect", "pickle.find_class"),
}
WRITES = {
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Audited:
    """What was run, and what was written outside of `home`, while the test lasted."""

    def __init__(self, home: Path) -> None:
        self.home = str(home.resolve())
        self.executed: list[str] = []
        self.outside: list[str] = []

    def see(self, event: str, given: tuple[Any, ...]) -> None:
        if event in RUNS:
            self.executed.append(f"{event} {given!r:.80}")
        elif event == "open" and isinstance(given[2], int) and given[2] & WRITING:
            self._place(event, given[0])
        elif event in WRITES:
            places = {"os.rename": given[:2], "os.link": given[1:2], "os.symlink": given[1:2]}
            for place in places.get(event, given[:1]):
                self._place(event, place)

    def _place(self, event: str, place: Any) -> None:
        if isinstance(place, (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(place))
            if not path.startswith((self.home + os.sep, "/dev/null")) and path != self.home:
                self.outside.append(f"{event} {path}")

    def figures(self) -> dict[str, int]:
        """For the scorecard; raises if there is anything."""
        assert not self.executed, self.executed
        assert not self.outside, self.outside
        return {"executed": len(self.executed), "written_outside": len(self.outside)}


_watching: list[Audited] = []


def _hook(event: str, given: tuple[Any, ...]) -> None:
    for one in _watching:
        one.see(event, given)


@pytest.fixture
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """Watch the process; a hook cannot be taken away again, so there is one for all tests."""
    if not hasattr(sys, "_dubito_hook"):
        sys.addaudithook(_hook)
        sys._dubito_hook = True  # type: ignore[attr-defined]
    made = Audited(tmp_path_factory.getbasetemp())
    _watching.append(made)
    yield made
    _watching.remove(made)


MOST = 300 << 20


def peak() -> int:
    """The largest resident size of this process in bytes, since `forget_peak` where the system can forget."""
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def forget_peak() -> None:
    """Let the largest resident size be the present one: a peak of an earlier test would hide one of this."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


@pytest.fixture
def bounded() -> Iterator[None]:
    """The test takes no more than 300 MiB beyond what the process holds."""
    forget_peak()
    before = peak()
    yield
    assert peak() - before < MOST
