"""Receive the notifications of a bucket about new objects from an SQS queue.

The messages are not parsed: an epoch lists the source itself. A message only triggers it. One that is delivered twice,
or concerns something else, causes an epoch with nothing to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from milepost.errors import StoreUnavailable
from milepost.protocol.records import Credentials
from milepost.storage.keys import is_loopback
from milepost.storage.s3.store import aws_session

WAIT_S = 10
"""How long one request waits for a first message. The end of the process may be delayed as long."""

MAX_RECEIPTS = 1000
"""Limit of messages received together. Many objects that land at the same time trigger one epoch."""

_REQUEST = 10
"""How many messages SQS takes or gives in one request."""


class NewObjectsQueue:
    """An SQS queue of S3 event notifications.

    Args:
        credentials: None: those of the standard AWS chain.
        region: of a queue without one in its URL; None: that of the AWS tools' configuration.
    Raises: StoreUnavailable: no region is known.
    """

    def __init__(self, url: str, credentials: Credentials | None = None, region: str | None = None) -> None:
        self._url = url
        parts = urlsplit(url)
        named = re.match(r"sqs\.([a-z0-9-]+)\.amazonaws\.", parts.netloc)
        endpoint = f"{parts.scheme}://{parts.netloc}"
        with self._translated_errors("opened"):
            self._client = aws_session(credentials).client(
                "sqs",
                endpoint_url=endpoint,
                region_name=named[1] if named else region,
                config=Config(read_timeout=WAIT_S + 10, **({"proxies": {}} if is_loopback(endpoint) else {})),
            )

    def receive(self) -> list[str]:
        """Wait for messages, at most `WAIT_S`. Returns their receipts, by which they are deleted; [] for none.

        Raises: StoreUnavailable.
        """
        with self._translated_errors("read"):
            receipts = self._received(WAIT_S)
            while receipts and len(receipts) < MAX_RECEIPTS and (more := self._received(0)):
                receipts += more
        return receipts

    def delete(self, receipts: list[str]) -> None:
        """Delete messages, by their receipts.

        Raises: StoreUnavailable: some are not deleted; those come again.
        """
        for begin in range(0, len(receipts), _REQUEST):
            batch = enumerate(receipts[begin : begin + _REQUEST])
            entries = [{"Id": str(index), "ReceiptHandle": receipt} for index, receipt in batch]
            with self._translated_errors("emptied of what was seen"):
                reply = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            if failed := reply.get("Failed"):
                raise self._unavailable("emptied of what was seen", failed[0]["Code"])

    @contextmanager
    def _translated_errors(self, doing: str) -> Iterator[None]:
        """Translate errors of botocore. The reply is omitted, because it may quote an access key."""
        try:
            yield
        except (BotoCoreError, ClientError, ValueError) as error:
            reason = error.response["Error"].get("Code") if isinstance(error, ClientError) else type(error).__name__
            raise self._unavailable(doing, reason) from error

    def _unavailable(self, doing: str, reason: str | None) -> StoreUnavailable:
        return StoreUnavailable(
            f"queue {self._url} could not be {doing} ({reason}).",
            hint="check its URL and region, and that the credentials in use may receive and delete its messages",
        )

    def _received(self, wait_s: int) -> list[str]:
        reply = self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=_REQUEST, WaitTimeSeconds=wait_s)
        return [message["ReceiptHandle"] for message in reply.get("Messages", ())]
