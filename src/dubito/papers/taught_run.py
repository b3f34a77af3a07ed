"""A config of distillation as two lanes, one after the other: a teacher, then its student."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import checkpoint
from ..lanes import Lane
from .configs import Config, run_id
from .lane_run import LaneRun
from .results import Result
from .runner import student_of, teacher_of


class TaughtRun:
    """What `LaneRun` is for other configs, with the same arguments.

    The teacher's last weights are kept beside the checkpoints of both, so that a run that is taken up again while
    the student trains does not train the teacher anew.
    """

    def __init__(self, config: Config, folder: Path, **options: Any) -> None:
        self.config, self.place, self.options = config, folder / run_id(config)[:16], options
        self.teacher = LaneRun(teacher_of(config), self.place / "teacher", role="/teacher", **options)
        self.student: LaneRun | None = None

    @property
    def _present(self) -> LaneRun:
        return self.student or self.teacher

    @property
    def lane(self) -> Lane:
        """The lane that is under way."""
        return self._present.lane

    @property
    def notes(self) -> dict[str, Any]:
        """Its seconds and scores."""
        return self._present.notes

    @property
    def epochs(self) -> int:
        """Epochs that each of the two begins."""
        return self._present.epochs

    @property
    def done(self) -> bool:
        """Whether the student's last epoch is behind it."""
        return self.student is not None and self.student.done

    def steps(self, leave: Callable[[], bool]) -> Iterator[None]:
        """Train both from the last checkpoint to the end, or until `leave` says so at the end of an epoch."""
        folder = self.place / "taught"
        kept = checkpoint.load_latest(folder)
        if kept is None:
            yield from self.teacher.steps(leave)
            if not self.teacher.done:
                return
            facts = {
                "accuracy": self.teacher.scores()["test_accuracy"],
                "seconds": self.teacher.notes["seconds"],
            }
            state = self.teacher.lane.model.state_dict()
            checkpoint.save(folder, 0, {"model": state}, facts)
        else:
            facts = kept.state
            self.teacher.lane.model.load_state_dict(kept.tensors["model"])
        procedure = student_of(self.config, self.teacher.lane.model)
        self.student = LaneRun(self.config, self.place, procedure=procedure, **self.options)
        self.student.found["teacher_test_accuracy"] = facts["accuracy"]
        self.student.found["teacher_seconds"] = facts["seconds"]
        yield from self.student.steps(leave)

    def result(self) -> Result:
        """What the student left; the teacher's seconds are counted."""
        assert self.student is not None
        result = self.student.result()
        return dataclasses.replace(result, seconds=result.seconds + result.history["teacher_seconds"])
