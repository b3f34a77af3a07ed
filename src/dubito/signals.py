"""SIGINT and SIGTERM as a request to stop, so that a loop can finish its step, save and leave."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_STATUS: dict[str | int | None, int] = {128 + number: number for number in (signal.SIGINT, signal.SIGTERM)}


class Stopped(SystemExit):
    """Raised by a loop that was asked to stop and has saved; uncaught, the exit status is 128 + signal."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class StopRequest:
    """False until SIGINT or SIGTERM arrives, then True, with the signal in `number`."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._owner = os.getpid()

    def __bool__(self) -> bool:
        return self.number is not None

    def leave(self) -> None:
        """Raise `Stopped` (exit status 130 or 143) if a signal has arrived; otherwise nothing."""
        if self.number is not None:
            raise Stopped(self.number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            self._receive_in_child(number)
        elif self.number is not None and number == signal.SIGINT:
            os._exit(128 + number)  # asked twice by hand: no clean-up that could take time
        elif self.number is None:
            self.number = number

    def _receive_in_child(self, number: int) -> None:
        """A forked worker leaves Ctrl-C to its parent, and dies of SIGTERM as if nothing had been installed."""
        if number == signal.SIGTERM:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


class _Unwinding(StopRequest):
    """What a command does outside its loops: it is left where it is, by an exception, as Python does for SIGINT."""

    def _receive(self, number: int, frame: FrameType | None) -> None:
        first = self.number is None
        super()._receive(number, frame)
        if first and self.number == signal.SIGINT:
            raise KeyboardInterrupt
        if first:
            self.leave()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a flag; a second SIGINT ends the process at once with status 130.

    Handlers are put back on the way out. Outside the main thread nothing is installed and the flag stays False. A
    signal that the process was started to ignore stays ignored: a shell in a script lets Ctrl-C pass by what it
    put in the background.

    Example:
        >>> with stop_on_signals() as stop:
        ...     signal.raise_signal(signal.SIGTERM)
        ...     bool(stop), stop.number
        (True, 15)
    """
    with _receiving(StopRequest()) as stop:
        yield stop


@contextlib.contextmanager
def unwind_on_signals() -> Iterator[None]:
    """Around a command: SIGTERM unwinds it as Ctrl-C does, and ends in status 143; a second SIGINT ends it at once.

    After a stop a further SIGINT ends the process at once while Python shuts down, too.

    Example:
        >>> with unwind_on_signals():
        ...     signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        False
    """
    request = _Unwinding()
    try:
        with _receiving(request):
            yield
    except SystemExit as end:  # a loop may have taken the signal
        request.number = request.number or _STATUS.get(end.code)
        raise
    finally:
        if request and threading.current_thread() is threading.main_thread() and _ours(signal.SIGINT):
            signal.signal(signal.SIGINT, request._receive)


@contextlib.contextmanager
def _receiving(stop: StopRequest) -> Iterator[StopRequest]:
    previous = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if _ours(number):
                    previous[number] = signal.signal(number, stop._receive)
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _ours(number: int) -> bool:
    """Whether to receive a signal: not one that is ignored, nor one that C code has (it could not be put back)."""
    return signal.getsignal(number) not in (signal.SIG_IGN, None)
