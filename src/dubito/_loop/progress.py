"""Progress on a terminal: epoch, loss, noisy validation accuracy, time left. Silent when piped."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any


class Progress:
    """A bar over epochs on standard error, shown on a terminal unless told otherwise."""

    def __init__(self, epochs: int, wanted: bool | None) -> None:
        self.epochs = epochs
        self.shown = sys.stderr.isatty() if wanted is None else wanted
        self._bar: Any = None

    def __enter__(self) -> Progress:
        if self.shown:
            from .._rich import (
                Bar,
                BarColumn,
                Console,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task("training", total=self.epochs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, record: Mapping[str, float]) -> None:
        """Show the newest record."""
        if self._bar is None:
            return
        words = [f"loss {record['loss']:.3f}"]
        if "valid_accuracy" in record:
            words.append(f"valid {record['valid_accuracy']:.3f}")
        self._bar.update(self._task, completed=record["epoch"], description="  ".join(words))
