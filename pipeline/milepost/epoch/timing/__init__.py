"""Times of an epoch's steps and tasks, and the throughput that follows from them."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.epoch.timing.step_clock import PlanTimes as PlanTimes
    from milepost.epoch.timing.step_clock import StepClock as StepClock
    from milepost.epoch.timing.step_clock import Unrecorded as Unrecorded
    from milepost.epoch.timing.task_times import COMPLETE as COMPLETE
    from milepost.epoch.timing.task_times import INCOMPLETE as INCOMPLETE
    from milepost.epoch.timing.task_times import OperatorTimes as OperatorTimes
    from milepost.epoch.timing.task_times import TaskTimes as TaskTimes
    from milepost.epoch.timing.task_times import attempts_prefix as attempts_prefix
    from milepost.epoch.timing.task_times import divided as divided
    from milepost.epoch.timing.throughput import ThroughputEstimate as ThroughputEstimate
    from milepost.epoch.timing.throughput import Work as Work
    from milepost.epoch.timing.throughput import measure as measure
else:
    __getattr__, __dir__ = lazy_exports(__name__)
