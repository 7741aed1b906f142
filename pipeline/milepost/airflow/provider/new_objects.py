"""New objects start an epoch: a bucket tells a queue of SQS, and the triggerer watches that queue.

Airflow's triggerer takes messages off the queue only once the events that they made are in its database, so a
triggerer that dies loses none (`SharedStreamProducer`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowRuntimeError, AirflowSecretsBackendAccessDenied
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from milepost.airflow.connections import async_airflow_connection
from milepost.errors import CheckpointError
from milepost.extras import require
from milepost.jobspec.job.connections import s3_access

if TYPE_CHECKING:
    from milepost.storage.s3.queue import NewObjectsQueue

log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""How long the triggerer waits before it asks a queue again that it could not read."""


AT_ONCE_S = 1.0
"""A queue that says within this time that it has nothing did not wait for messages, as it was asked to."""


_FAULTS = (CheckpointError, AirflowException, AirflowRuntimeError, AirflowSecretsBackendAccessDenied)
"""What a queue, and the look-up of its Connection, raise while something is not as it should be."""


class NewObjectsTrigger(BaseEventTrigger):
    """Fires when a queue has messages: once for all that wait there.

    Args:
        queue_url: of the queue. conn_id: of the Connection whose credentials may read it; None: the AWS chain.
    """

    def __init__(self, *, queue_url: str, conn_id: str | None = None) -> None:
        super().__init__()
        self.queue_url = queue_url
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow keeps of it, and makes it again from: no credentials."""
        about = {"queue_url": self.queue_url, "conn_id": self.conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", about

    def shared_stream_key(self) -> Hashable:
        """All jobs that one queue starts are told of each message."""
        return self.queue_url, self.conn_id

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return WatchedQueue(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[int]) -> AsyncIterator[TriggerEvent]:
        async for messages in shared_stream:
            yield TriggerEvent({"queue": self.queue_url, "messages": messages})

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Never called: Airflow asks a trigger with a shared stream for its filter instead."""
        raise NotImplementedError(f"{type(self).__name__} is fed by its shared stream")


class WatchedQueue(SharedStreamProducer):
    """A queue as the triggerer watches it: yields how many messages wait, and deletes them when told to."""

    def __init__(self, *, queue_url: str, conn_id: str | None) -> None:
        self._url, self._conn_id = queue_url, conn_id
        self._queue: NewObjectsQueue | None = None

    async def open_stream(self) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield, for ever, a number of messages and their receipts; what cannot be read is tried again."""
        queue = None
        while True:
            try:
                if queue is None:
                    queue = self._queue = await self._opened()
                asked_s = time.monotonic()
                receipts = await asyncio.to_thread(queue.receive)
            except _FAULTS as error:  # else Airflow starts it again every second or two
                log.warning("queue %s is tried again in %.0f s: %s", self._url, PAUSE_S, error)
                queue = None  # its Connection is looked up anew; what was received before is deleted by the old one
                await asyncio.sleep(PAUSE_S)
                continue
            if receipts:
                yield len(receipts), receipts
            elif time.monotonic() - asked_s < AT_ONCE_S:
                await asyncio.sleep(PAUSE_S)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Delete the messages whose events are in Airflow's database."""
        assert self._queue is not None
        receipts = [receipt for item in batch if item.outcome.is_clean for receipt in item.broker_payload]
        try:
            await asyncio.to_thread(self._queue.delete, receipts)
        except CheckpointError as error:  # they come again: a run with nothing to do
            log.warning("of %d messages some were not deleted: %s", len(receipts), error)

    async def _opened(self) -> NewObjectsQueue:
        require("s3", f"the queue {self._url}")
        from milepost.storage.s3.queue import NewObjectsQueue

        if self._conn_id is None:
            return await asyncio.to_thread(NewObjectsQueue, self._url)
        access = s3_access(await async_airflow_connection(self._conn_id))
        return await asyncio.to_thread(NewObjectsQueue, self._url, access.credentials, access.region)
