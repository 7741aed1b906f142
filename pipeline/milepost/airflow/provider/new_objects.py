"""Trigger an epoch when new objects arrive: a bucket notifies an SQS queue, which the triggerer watches.

Airflow's triggerer deletes messages only after their events are in its database, so no message is lost if it dies
(`SharedStreamProducer`).
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
from milepost.jobspec.job import s3_access

if TYPE_CHECKING:
    from milepost.storage.s3 import NewObjectsQueue

log = logging.getLogger(__name__)

PAUSE_S = 30.0
"""How long the triggerer waits before it retries a queue that it could not read."""


AT_ONCE_S = 1.0
"""If an empty response arrives within this time, the queue ignored the requested long poll."""


_FAULTS = (CheckpointError, AirflowException, AirflowRuntimeError, AirflowSecretsBackendAccessDenied)
"""Temporary or configuration errors of a queue and of its Connection."""


class NewObjectsTrigger(BaseEventTrigger):
    """Fires once for all messages that are waiting in a queue.

    Args:
        queue_url: URL of the queue. conn_id: id of the Connection with its credentials; None: the AWS default chain.
    """

    def __init__(self, *, queue_url: str, conn_id: str | None = None) -> None:
        super().__init__()
        self.queue_url = queue_url
        self.conn_id = conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments, which Airflow stores. They contain no credentials."""
        arguments = {"queue_url": self.queue_url, "conn_id": self.conn_id}
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def shared_stream_key(self) -> Hashable:
        """Return the key of the stream. All jobs with the same queue share it, so each gets every message."""
        return self.queue_url, self.conn_id

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        return WatchedQueue(**kwargs)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[int]) -> AsyncIterator[TriggerEvent]:
        async for messages in shared_stream:
            yield TriggerEvent({"queue": self.queue_url, "messages": messages})

    def run(self) -> AsyncIterator[TriggerEvent]:
        """Never called: Airflow calls `filter_shared_stream` instead."""
        raise NotImplementedError(f"{type(self).__name__} gets its events from its shared stream")


class WatchedQueue(SharedStreamProducer):
    """Reads a queue for the triggerer, and deletes messages after their events are stored."""

    def __init__(self, *, queue_url: str, conn_id: str | None) -> None:
        self._url, self._conn_id = queue_url, conn_id
        self._queue: NewObjectsQueue | None = None

    async def open_stream(self) -> AsyncIterator[tuple[int, list[str]]]:
        """Yield (number of messages, their receipts), indefinitely. Retries a queue that cannot be read."""
        queue = None
        while True:
            try:
                if queue is None:
                    queue = self._queue = await self._open()
                started_s = time.monotonic()
                receipts = await asyncio.to_thread(queue.receive)
            except _FAULTS as error:  # otherwise Airflow would restart it every second or two
                log.warning("queue %s is retried in %.0f s: %s", self._url, PAUSE_S, error)
                queue = None  # read its Connection again; `self._queue` still deletes earlier messages
                await asyncio.sleep(PAUSE_S)
                continue
            if receipts:
                yield len(receipts), receipts
            elif time.monotonic() - started_s < AT_ONCE_S:
                await asyncio.sleep(PAUSE_S)

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Delete the messages that have become events in Airflow's database."""
        assert self._queue is not None
        receipts = [receipt for item in batch if item.outcome.is_clean for receipt in item.broker_payload]
        try:
            await asyncio.to_thread(self._queue.delete, receipts)
        except CheckpointError as error:  # they are delivered again, and trigger a run with nothing to do
            log.warning("some of %d messages were not deleted: %s", len(receipts), error)

    async def _open(self) -> NewObjectsQueue:
        require("s3", f"the queue {self._url}")
        from milepost.storage.s3 import NewObjectsQueue

        if self._conn_id is None:
            return await asyncio.to_thread(NewObjectsQueue, self._url)
        access = s3_access(await async_airflow_connection(self._conn_id))
        return await asyncio.to_thread(NewObjectsQueue, self._url, access.credentials, access.region)
