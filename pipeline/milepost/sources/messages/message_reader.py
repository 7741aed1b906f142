"""Read landed messages as rows: decode their values, and add columns of the messages themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.job import MESSAGE_COLUMNS, SEQUENCE, EventTimeSpec, MessageLayout
from milepost.protocol.records import ObjectStore, landed_object_sequence
from milepost.sources.contract import (
    MAX_RAW_BYTES,
    PARTITION,
    TOMBSTONES,
    BadMessage,
    BadRecord,
    EndingMessage,
    ObjectPart,
    SourceObject,
    whole_object,
)
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.landed import SCHEMA_METADATA
from milepost.sources.messages.carried_columns import CarriedColumns
from milepost.sources.messages.debezium_values import debezium_values
from milepost.sources.messages.json_values import JsonValues
from milepost.sources.messages.registry_values import RegistryValues
from milepost.sources.messages.rowwise_values import UNDECODABLE, EndingValue, ValueDecoder
from milepost.sources.parquet import ParquetReader

_CHUNK_MESSAGES = 1024
"""Number of messages to search for bad ones in one step."""

_PLACE = ("topic", "partition", "offset")


class MessageReader:
    """Reads landed messages; picklable, holds no open file.

    If values are decoded, a message without a value has no row. The metadata `TOMBSTONES` of a batch counts those. If
    the rows have an event time, the batches have the column `PARTITION` as well.

    Attributes:
        schema: of the rows: the decoded columns, then those of the messages.
    """

    def __init__(self, source: str, layout: MessageLayout, event_time: EventTimeSpec | None) -> None:
        self._decoder: Callable[[Mapping[bytes, bytes]], ValueDecoder] | None = None
        decoded = pa.schema([])
        if layout.decoded:
            of_value = event_time is not None and event_time.column in layout.decoded
            declared = DeclaredColumns(
                source, layout.decoded, event_time=event_time if of_value else None, optional=layout.decoded
            )
            self._decoder, decoded = _decoder_of(layout, declared), declared.schema
        self._carried = CarriedColumns(source, layout.carried, event_time)
        unordered = pa.schema([*decoded, *self._carried.schema])
        self._order = [unordered.get_field_index(name) for name in layout.order]
        self.schema = pa.schema([unordered.field(at) for at in self._order])
        partition = [] if event_time is None else [pa.field(PARTITION, pa.string())]
        self._batch_schema = pa.schema([*self.schema, *partition])
        self._has_sequence = any(column.field == SEQUENCE for column in layout.carried.values())
        needed = {"value", *_PLACE, *(column.field for column in layout.carried.values())}
        columns = {name: type_ for name, type_ in MESSAGE_COLUMNS.items() if name in needed}
        declared = DeclaredColumns(source, columns)
        self._parquet = ParquetReader(declared, is_trusted=True, metadata_prefix=SCHEMA_METADATA)

    def read_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the part's messages, in their order, in batches of up to 16,384 rows.

        Raises:
            BadMessage: the first message that cannot be decoded. BadObject: the object is not what was landed.
            CommitConflict, NotFound: it was changed or deleted.
        """
        for messages, decoder in self._messages(store, part):
            try:
                rows = self._rows(messages, decoder)
            except UNDECODABLE as error:
                for chunk in _chunks(messages):
                    if errors := self._errors(part.object.key, chunk, decoder):
                        raise errors[min(errors)] from error
                reason = "its messages cannot be read"
                raise BadRecord(part.object.key, None, None, None, reason, engine_message=str(error)) from error
            yield rows

    def salvage_part(self, store: ObjectStore, part: ObjectPart) -> Iterator[pa.RecordBatch | BadRecord]:
        """Yield the rows of the messages that can be decoded, in their order, and a BadMessage for each other one.

        Raises:
            EndingMessage: the first message after which no row may be read. It is a BadObject.
            BadObject, CommitConflict, NotFound: as `read_part`.
        """
        for messages, decoder in self._messages(store, part):
            if (rows := self._rows_if_good(messages, decoder)) is not None:
                yield rows
                continue
            for chunk in _chunks(messages):
                errors: dict[int, BadMessage] = {}
                if (rows := self._rows_if_good(chunk, decoder)) is None:
                    errors = self._errors(part.object.key, chunk, decoder)
                    if ending := [at for at, error in errors.items() if isinstance(error, EndingMessage)]:
                        raise errors[min(ending)]
                    good = [at for at in range(chunk.num_rows) if at not in errors]
                    rows = self._rows(chunk.take(pa.array(good, pa.int64())), decoder)
                if rows.num_rows or rows.schema.metadata:
                    yield rows
                yield from (errors[at] for at in sorted(errors))

    def message_places(self, store: ObjectStore, obj: SourceObject) -> Iterator[tuple[str, int, int]]:
        """Yield topic, partition and offset of each message that has a row, in order. Raises as `read_part`."""
        for messages, _ in self._messages(store, whole_object(obj)):
            yield from zip(*(messages[name].to_pylist() for name in _PLACE), strict=True)

    def _messages(self, store: ObjectStore, part: ObjectPart) -> Iterator[tuple[pa.RecordBatch, ValueDecoder | None]]:
        """Yield the part's messages that have a row, and what decodes their values.

        Those that have no row are counted in `TOMBSTONES`.
        """
        for messages in self._parquet.read_part(store, part):
            decoder = None if self._decoder is None else self._decoder(messages.schema.metadata or {})
            messages = messages.replace_schema_metadata(None)
            if decoder is not None and (tombstones := messages["value"].null_count):
                messages = messages.filter(messages["value"].is_valid())
                messages = messages.replace_schema_metadata({TOMBSTONES: str(tombstones)})
            yield self._with_sequence(part.object.key, messages) if self._has_sequence else messages, decoder

    def _with_sequence(self, key: str, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Add the sequence of the record that has the object."""
        sequence = pa.scalar(landed_object_sequence(key), pa.int64())
        return messages.append_column(SEQUENCE, pa.repeat(sequence, messages.num_rows))

    def _rows(self, messages: pa.RecordBatch, decoder: ValueDecoder | None) -> pa.RecordBatch:
        """Return one row per message. Raises UNDECODABLE: one cannot be decoded."""
        decoded = [] if decoder is None else decoder.decode(messages["value"]).columns
        partition = [_partitions(messages)] if PARTITION in self._batch_schema.names else []
        columns = [*decoded, *self._carried.arrays(messages)]
        rows = pa.RecordBatch.from_arrays([*(columns[at] for at in self._order), *partition], schema=self._batch_schema)
        return rows.replace_schema_metadata(messages.schema.metadata)

    def _rows_if_good(self, messages: pa.RecordBatch, decoder: ValueDecoder | None) -> pa.RecordBatch | None:
        """Return one row per message; None if one cannot be decoded."""
        try:
            return self._rows(messages, decoder)
        except UNDECODABLE:
            return None

    def _errors(self, key: str, messages: pa.RecordBatch, decoder: ValueDecoder | None) -> dict[int, BadMessage]:
        """Return the error of each message that cannot be decoded, by its index."""
        found = self._carried.errors(key, messages)
        if decoder is not None:
            found |= decoder.errors(key, messages["value"])
        return {at: _located(error, messages, at) for at, error in found.items()}


def _decoder_of(layout: MessageLayout, declared: DeclaredColumns) -> Callable[[Mapping[bytes, bytes]], ValueDecoder]:
    """Return what makes the decoder of an object's values, by the object's metadata; picklable."""
    if layout.registry_format is not None:
        return RegistryValues(declared, layout.registry_format).decoder
    values = JsonValues(declared) if layout.changes is None else debezium_values(declared, layout.changes)
    return partial(_same_for_all, values)


def _same_for_all(values: ValueDecoder, _metadata: Mapping[bytes, bytes]) -> ValueDecoder:
    return values


def _chunks(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the messages in parts, so that not all are searched for the first bad one. The first has the metadata."""
    for start in range(0, messages.num_rows, _CHUNK_MESSAGES):
        chunk = messages.take(pa.array(range(start, min(start + _CHUNK_MESSAGES, messages.num_rows)), pa.int64()))
        yield chunk if start == 0 else chunk.replace_schema_metadata(None)


def _partitions(messages: pa.RecordBatch) -> pa.Array:
    """Return `partition_name` of each message."""
    return pc.binary_join_element_wise(messages["topic"], messages["partition"].cast(pa.string()), "/")


def _located(error: BadRecord, messages: pa.RecordBatch, at: int) -> BadMessage:
    topic, partition, offset = (messages[name][at].as_py() for name in _PLACE)
    value = messages["value"][at].as_py()
    make = EndingMessage if isinstance(error, EndingValue) else BadMessage
    return make(
        error.key,
        None,
        error.column,
        error.value,
        error.clause,
        topic=topic,
        partition=partition,
        offset=offset,
        engine_message=error.engine_message,
        raw=None if value is None else value[:MAX_RAW_BYTES],
    )
