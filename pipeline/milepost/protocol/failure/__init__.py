"""Failures: their abort reasons, how they count, and when an epoch restarts."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.failure.abort_reasons import UNCONFIRMED_WRITE_ERRORS as UNCONFIRMED_WRITE_ERRORS
    from milepost.protocol.failure.abort_reasons import detail_for as detail_for
    from milepost.protocol.failure.abort_reasons import reason_for as reason_for
    from milepost.protocol.failure.abort_reasons import with_reason as with_reason
    from milepost.protocol.failure.failures import MAX_DETAIL_CHARACTERS as MAX_DETAIL_CHARACTERS
    from milepost.protocol.failure.restart import ExponentialDelay as ExponentialDelay
    from milepost.protocol.failure.restart import FailureRate as FailureRate
    from milepost.protocol.failure.restart import FixedDelay as FixedDelay
    from milepost.protocol.failure.restart import GiveUp as GiveUp
    from milepost.protocol.failure.restart import NoRestart as NoRestart
    from milepost.protocol.failure.restart import RestartAfter as RestartAfter
    from milepost.protocol.failure.restart import RestartDecision as RestartDecision
    from milepost.protocol.failure.restart import RestartHistory as RestartHistory
    from milepost.protocol.failure.restart import RestartStrategy as RestartStrategy
    from milepost.protocol.failure.restart import restart_after as restart_after
else:
    __getattr__, __dir__ = lazy_exports(__name__)
