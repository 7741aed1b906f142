"""The parts of a transition: requests, preconditions, events, rules and answers."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.manifest.transaction.answers import AlreadyDone as AlreadyDone
    from milepost.protocol.manifest.transaction.answers import Answer as Answer
    from milepost.protocol.manifest.transaction.answers import Outcome as Outcome
    from milepost.protocol.manifest.transaction.answers import Transition as Transition
    from milepost.protocol.manifest.transaction.events import CheckpointAborted as CheckpointAborted
    from milepost.protocol.manifest.transaction.events import CheckpointCompleted as CheckpointCompleted
    from milepost.protocol.manifest.transaction.events import CheckpointsSubsumed as CheckpointsSubsumed
    from milepost.protocol.manifest.transaction.events import CheckpointTriggered as CheckpointTriggered
    from milepost.protocol.manifest.transaction.events import Event as Event
    from milepost.protocol.manifest.transaction.events import ForkDisposed as ForkDisposed
    from milepost.protocol.manifest.transaction.events import JobCanceled as JobCanceled
    from milepost.protocol.manifest.transaction.events import JobResumed as JobResumed
    from milepost.protocol.manifest.transaction.events import JobStarted as JobStarted
    from milepost.protocol.manifest.transaction.events import ObjectQuarantined as ObjectQuarantined
    from milepost.protocol.manifest.transaction.events import ObjectReleased as ObjectReleased
    from milepost.protocol.manifest.transaction.events import RealignmentDecided as RealignmentDecided
    from milepost.protocol.manifest.transaction.events import SavepointCreated as SavepointCreated
    from milepost.protocol.manifest.transaction.events import SavepointDisposed as SavepointDisposed
    from milepost.protocol.manifest.transaction.events import SinksConfirmed as SinksConfirmed
    from milepost.protocol.manifest.transaction.events import SwitchKind as SwitchKind
    from milepost.protocol.manifest.transaction.events import TimelineForked as TimelineForked
    from milepost.protocol.manifest.transaction.events import TimelineSwitched as TimelineSwitched
    from milepost.protocol.manifest.transaction.events import aborts_of as aborts_of
    from milepost.protocol.manifest.transaction.events import confirmation_of as confirmation_of
    from milepost.protocol.manifest.transaction.lease import HEARTBEAT_INTERVAL_MS as HEARTBEAT_INTERVAL_MS
    from milepost.protocol.manifest.transaction.lease import Abandon as Abandon
    from milepost.protocol.manifest.transaction.lease import Adopt as Adopt
    from milepost.protocol.manifest.transaction.lease import LeaseFacts as LeaseFacts
    from milepost.protocol.manifest.transaction.lease import LeaseStatus as LeaseStatus
    from milepost.protocol.manifest.transaction.lease import Revocation as Revocation
    from milepost.protocol.manifest.transaction.lease import lease_status as lease_status
    from milepost.protocol.manifest.transaction.lease import revocation as revocation
    from milepost.protocol.manifest.transaction.lease import sweep_decision as sweep_decision
    from milepost.protocol.manifest.transaction.preconditions import active_freeze as active_freeze
    from milepost.protocol.manifest.transaction.preconditions import check_reconciled as check_reconciled
    from milepost.protocol.manifest.transaction.preconditions import check_runnable as check_runnable
    from milepost.protocol.manifest.transaction.preconditions import find_completion as find_completion
    from milepost.protocol.manifest.transaction.preconditions import find_pending as find_pending
    from milepost.protocol.manifest.transaction.preconditions import job_ended_error as job_ended_error
    from milepost.protocol.manifest.transaction.preconditions import open_timeline as open_timeline
    from milepost.protocol.manifest.transaction.requests import AbortRequest as AbortRequest
    from milepost.protocol.manifest.transaction.requests import CancelRequest as CancelRequest
    from milepost.protocol.manifest.transaction.requests import CleanRequest as CleanRequest
    from milepost.protocol.manifest.transaction.requests import CompleteRequest as CompleteRequest
    from milepost.protocol.manifest.transaction.requests import ConfirmSinksRequest as ConfirmSinksRequest
    from milepost.protocol.manifest.transaction.requests import CreateRequest as CreateRequest
    from milepost.protocol.manifest.transaction.requests import DisposeForkRequest as DisposeForkRequest
    from milepost.protocol.manifest.transaction.requests import DisposeSavepointRequest as DisposeSavepointRequest
    from milepost.protocol.manifest.transaction.requests import FastForwardRequest as FastForwardRequest
    from milepost.protocol.manifest.transaction.requests import FinishRequest as FinishRequest
    from milepost.protocol.manifest.transaction.requests import FloorProposal as FloorProposal
    from milepost.protocol.manifest.transaction.requests import FoldGarbageRequest as FoldGarbageRequest
    from milepost.protocol.manifest.transaction.requests import ForgetCollectedRequest as ForgetCollectedRequest
    from milepost.protocol.manifest.transaction.requests import ForkRequest as ForkRequest
    from milepost.protocol.manifest.transaction.requests import FreezeRequest as FreezeRequest
    from milepost.protocol.manifest.transaction.requests import GarbageDeletedRequest as GarbageDeletedRequest
    from milepost.protocol.manifest.transaction.requests import ListGarbageRequest as ListGarbageRequest
    from milepost.protocol.manifest.transaction.requests import ListProgress as ListProgress
    from milepost.protocol.manifest.transaction.requests import PinRequest as PinRequest
    from milepost.protocol.manifest.transaction.requests import QuarantineRequest as QuarantineRequest
    from milepost.protocol.manifest.transaction.requests import RealignSinkRequest as RealignSinkRequest
    from milepost.protocol.manifest.transaction.requests import RebindRequest as RebindRequest
    from milepost.protocol.manifest.transaction.requests import ReconcileSinkRequest as ReconcileSinkRequest
    from milepost.protocol.manifest.transaction.requests import RecordCompactionRequest as RecordCompactionRequest
    from milepost.protocol.manifest.transaction.requests import RecordSavepointRequest as RecordSavepointRequest
    from milepost.protocol.manifest.transaction.requests import ReleaseRequest as ReleaseRequest
    from milepost.protocol.manifest.transaction.requests import ResumeRequest as ResumeRequest
    from milepost.protocol.manifest.transaction.requests import RollbackRequest as RollbackRequest
    from milepost.protocol.manifest.transaction.requests import StartRequest as StartRequest
    from milepost.protocol.manifest.transaction.requests import SubsumeRequest as SubsumeRequest
    from milepost.protocol.manifest.transaction.requests import ThawRequest as ThawRequest
    from milepost.protocol.manifest.transaction.requests import TriggerRequest as TriggerRequest
    from milepost.protocol.manifest.transaction.requests import UnpinRequest as UnpinRequest
    from milepost.protocol.manifest.transaction.runs import find_coverage as find_coverage
    from milepost.protocol.manifest.transaction.transitions import checkpoints_of as checkpoints_of
else:
    __getattr__, __dir__ = lazy_exports(__name__)
