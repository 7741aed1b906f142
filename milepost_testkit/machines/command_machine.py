"""Base of the Hypothesis machines over stepped processes: run and judge commands, settle the job."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from milepost.errors import (
    Busy,
    CommitConflict,
    CommitOutcomeUnknown,
    Fenced,
    JobNotRunnable,
    NotFound,
    StoreUnavailable,
    Subsumed,
    SubtaskDeclined,
)
from milepost_testkit import profiles
from milepost_testkit.machines.protocol_world import Answers, SteppedJob
from milepost_testkit.models.protocol.require import require
from milepost_testkit.stores.stepped_processes import Crashed, Process

REFUSED = (Busy, Fenced, CommitConflict, JobNotRunnable, NotFound, Subsumed, Crashed)
"""Errors with which any command may end."""

STRUCK = (CommitOutcomeUnknown, StoreUnavailable)
"""Errors with which a command may end if it met a fault."""


def in_the_suite(share: float) -> settings:
    """Return the settings of a machine over whole jobs. A failure is not shrunk: that takes minutes."""
    return profiles.examples(share, phases=(Phase.reuse, Phase.generate))


class CommandMachine(RuleBasedStateMachine):
    """Commands on one stepped job.

    Attributes:
        checked_at: the manifest version at which the stores were walked last.
    """

    world: Any

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="milepost-machine-")
        self.world = self.new_world(Path(self.folder.name) / "job")
        self.model = self.world.model
        self.checked_at = 0

    def new_world(self, folder: Path) -> SteppedJob:
        raise NotImplementedError

    def check(self, every: int) -> None:
        """Compare the stored state with the model; also walk the stores after every `every` manifest versions."""
        self.world.check()
        if self.model.version >= self.checked_at + every:
            self.checked_at = self.model.version
            self.world.check_stores()

    def done(self, process: Process, answers: Answers = Answers.ALL) -> None:
        process.go_on()
        require(process.over, f"{process.name} does not end")
        self.judge(process, answers)

    def judge(self, process: Process, answers: Answers | None = Answers.ALL) -> None:
        """Check that a command succeeded, or failed with an error that names the fault it met.

        Args:
            answers: the subtask answers that reached its driver; None if unknown.
        """
        self.world.mourn(process)
        self.world.stores.watchers.raise_broken()
        error = process.error
        if error is None or isinstance(error, REFUSED) or self.is_refusal(error):
            return
        if isinstance(error, STRUCK):
            require(process.faults or self.may_wait(), f"{process.name} met no fault and ends with {error!r}")
            return
        declined = process.faults or answers is None or not answers.good
        require(isinstance(error, SubtaskDeclined) and declined, f"{process.name} ends with {error!r}")

    def is_refusal(self, error: BaseException) -> bool:
        """Whether the error, apart from `REFUSED`, reports an impossible request."""
        return False

    def may_wait(self) -> bool:
        """Whether a command without a fault of its own may report that a sink does not answer."""
        return False

    def teardown(self) -> None:
        try:
            self.world.settle()
        finally:
            self.world.close()
            self.folder.cleanup()
