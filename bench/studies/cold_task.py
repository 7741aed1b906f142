"""`python -m bench.studies.cold_task SPEC RUN TASK [CHECKPOINT TOKEN]`: what one task of an epoch asks, in a process.

The trigger prints the checkpoint and the token, which a scheduler hands on to the others.
"""

from __future__ import annotations

import sys

from milepost.api import JobMaster, Session, load_job, spark_runner
from milepost.epoch.timing.step_clock import StepClock
from milepost.jobmaster.run.trigger_result import Triggered


def main(spec: str, run: str, task: str, *handed_on: str) -> None:
    """Do what the operator of that task does, for the run of that name."""
    master, session = JobMaster(load_job(spec)), Session.airflow("trips__epoch", run, "scheduled", None)
    if task == "trigger":
        triggered = master.triggers.trigger(session)
        assert isinstance(triggered, Triggered), triggered
        print(int(triggered.checkpoint_id), int(triggered.token))
        return
    checkpoint_id, token = map(int, handed_on)
    clock = StepClock()
    clock(task)
    if task == "run_epoch":
        master.epochs.run_epoch(session, checkpoint_id, spark_runner())
    elif task == "validate":
        master.epochs.validate(session, checkpoint_id)
    else:
        if task == "complete":
            token = int(master.epochs.complete(session, checkpoint_id).token)
        elif task == "subsume":
            master.epochs.subsume(session)
        else:
            master.epochs.notify_complete(session, checkpoint_id, task.partition(" ")[2])
        master.epochs.keep_times(checkpoint_id, token, clock)


if __name__ == "__main__":
    main(*sys.argv[1:])
