"""A job's first checkpoint, built from tables: the keyed state of some of its operators.

The table of an operator has exactly the columns of its state, as `milepost state --stored` shows it. Rows are placed by
the product's own key hash and written by the state's own code, so what comes out is what an epoch with those rows in
its state would have left. Sources have no position: the first epoch reads what `start` says. Tables of sinks begin
empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from milepost.dataflow.operators.contract import ONLY_TABLE, StatefulOperator
from milepost.dataflow.quality.verdict import GateVerdict
from milepost.dataflow.spilled.ordered_rows import ordered_rows
from milepost.dataflow.spilled.scratch_reading import content_of_scratch
from milepost.dataflow.spilled.spilled_rows import SpilledRows
from milepost.epoch.code_hash import code_by_name
from milepost.epoch.metadata import CheckpointMetadata, OperatorSnapshot, StateTableSnapshot
from milepost.epoch.plan import InputRecord, encode_input_record
from milepost.jobmaster.compatibility.preflight import expected_operator
from milepost.jobmaster.job.checks.store_checks import require_stores
from milepost.jobmaster.job.code import LoadedCode, read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.extended import extended
from milepost.jobmaster.leadership.leadership import Leadership
from milepost.jobmaster.leadership.lifecycle import Lifecycle
from milepost.jobmaster.leadership.outcomes import JobOutcome
from milepost.jobmaster.rollback.imported_checkpoint import (
    Provenance,
    acknowledged_by_writer,
    imported,
    importing_session,
)
from milepost.jobmaster.rollback.plan import ApprovedRollback
from milepost.jobmaster.rollback.rollback import Rollbacks
from milepost.jobmaster.savepoints.restore import check_tables, startable
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.protocol.records.errors import InvalidRequest, NotFound
from milepost.protocol.records.ids import OperatorUid, TimelineId
from milepost.protocol.records.locations import file_url
from milepost.spec.graph.compatibility import state_signatures
from milepost.spec.job.spec import AggregateOperator, DeduplicateOperator, ProcessOperator, StatefulSpec
from milepost.state.keyed.keyed_state import restore_state
from milepost.state.keyed.slices import STATE_COPIES, joined_handle, row_bytes, slices_within
from milepost.state.layers.exact_keys import key_numbers
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.bodies import pieces_of
from milepost.storage.checked import stored_file, write_content_addressed
from milepost.storage.layout import INPUTS_PREFIX, state_prefix

_KINDS = "aggregate, deduplicate, process"
_GROUP = "__key_group"
_CSV_BLOCK_BYTES = 16 << 20

_SLICE_BYTES = 64 << 20
"""Memory of a slice of a subtask's key groups while it is written."""


@dataclass(frozen=True, slots=True)
class BootstrappedState:
    """State of an operator that came from a file."""

    file: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrappedJob(JobOutcome):
    """A job that begins with state of these operators, by uid."""

    operators: Mapping[str, BootstrappedState]


class Bootstrap:
    """Starting a job from tables."""

    def __init__(self, context: JobContext, leadership: Leadership, lifecycle: Lifecycle, rollbacks: Rollbacks) -> None:
        self._context, self._leadership, self._lifecycle = context, leadership, lifecycle
        self._rollbacks = rollbacks

    def bootstrap(self, files: Mapping[str, str]) -> BootstrappedJob:
        """Make a checkpoint with this state the job's head, and open the job if it has ended.

        Args:
            files: per operator uid a Parquet or CSV file (`.parquet`, `.csv`): a path, or a URL.
        Raises:
            InvalidRequest: the job runs; an operator cannot be bootstrapped; a table does not fit its state.
            NotFound: there is no such operator or file. Nothing was changed.
        """
        context, session = self._context, importing_session()
        state = startable(context, self._lifecycle, session, "a table")
        require_stores(context)
        if not files:
            raise InvalidRequest("bootstrap needs at least one UID=FILE. Nothing was changed.")
        code = read_code(context)
        loaded = code.load(context)
        specs = {uid: _spec(context, loaded, uid) for uid in files}
        tables = {uid: read_table(context, loaded, specs[uid], file) for uid, file in files.items()}
        check_tables(context, state, {})
        plan = write_content_addressed(context.store, INPUTS_PREFIX, ".json", encode_input_record(InputRecord(())))

        def write(pending: PendingCheckpoint, timeline: TimelineId) -> CheckpointMetadata:
            hasher = KeyHash(context.head().state.key_hash_secret)
            operators = {uid: _snapshot(context, pending, hasher, *table) for uid, table in tables.items()}
            signatures = state_signatures(context.job.spec, loaded.graph)
            digest = hashlib.sha256(repr(sorted(operators.items())).encode()).hexdigest()
            return CheckpointMetadata(
                job=context.spec.name,
                checkpoint_id=pending.checkpoint_id,
                epoch=pending.epoch,
                timeline=timeline,
                token=pending.token,
                base=pending.base,
                code_hash=pending.code_hash,
                code=code_by_name({uid: function.modules() for uid, function in code.functions.items()}),
                spec_hash=pending.spec_hash,
                spec_text=context.job.text,
                signatures={
                    "operators": {uid: signatures["operators"][uid] for uid in operators},
                    "job": signatures["job"],
                },
                max_parallelism=context.spec.checkpointing.max_parallelism,
                hasher=hasher,
                plan=pending.plan,
                sources={},
                operators=operators,
                sinks={},
                tables={},
                acknowledged=acknowledged_by_writer(digest),
                verdict=GateVerdict.of(()),
            )

        made = Provenance(plan, code.hash, context.job.spec_hash)
        detail = f"bootstrapped from tables: {', '.join(sorted(tables))}"
        with imported(context, self._leadership, session, made, write) as completed:
            expected = ApprovedRollback(0 if state is None else int(state.timeline().head), {})
            self._rollbacks.rollback(session, int(completed.checkpoint_id), approved=expected, detail=detail)
        opened = replace(self._lifecycle.start(), outcome="started")
        operators = {uid: BootstrappedState(file, tables[uid][1].num_rows) for uid, file in files.items()}
        return extended(BootstrappedJob, opened, operators=operators)


def _spec(context: JobContext, loaded: LoadedCode, uid: str) -> StatefulSpec:
    """Return the operator's spec. Raises NotFound, InvalidRequest: it cannot be bootstrapped."""
    nodes = {node.uid: node for node in loaded.graph.stateful}
    if uid not in nodes:
        known = ", ".join(sorted(nodes)) or "none"
        raise NotFound(f"job {context.spec.name} has no stateful operator {uid}; it has: {known}. Nothing was changed.")
    spec = context.spec.operator(uid)
    if not isinstance(spec, AggregateOperator | DeduplicateOperator | ProcessOperator):
        raise InvalidRequest(
            f"operator {uid}: `kind: {nodes[uid].kind}` cannot be bootstrapped from a table in this version; these can:"
            f" {_KINDS}. Nothing was changed."
        )
    return spec


def read_table(
    context: JobContext, loaded: LoadedCode, spec: StatefulSpec, file: str
) -> tuple[StatefulOperator, SpilledRows]:
    """Read a table of an operator's state, all of it. Strict: the very columns and types, no key twice.

    What only Spark knows of the operator's types is taken from the table, of CSV from its first 16 MB; the first epoch
    compares it.

    Returns: the operator that has this state, and its rows.
    Raises: NotFound: no such file. InvalidRequest: it is not such a table.
    """
    url = file if "://" in file else file_url(Path(file).absolute())
    folder, _, name = url.rpartition("/")
    with ExitStack() as opened:
        try:
            body = opened.enter_context(stored_file(context.other_store(folder), name))
        except NotFound as error:
            raise NotFound(
                f"there is no file {file} with the state of operator {spec.uid}. Nothing was changed.", uid=spec.uid
            ) from error
        return _read_table(loaded, spec, file, name, body)


def _read_table(
    loaded: LoadedCode, spec: StatefulSpec, file: str, name: str, body: IO[bytes]
) -> tuple[StatefulOperator, SpilledRows]:
    def refused(error: Exception) -> InvalidRequest:
        problem = f"it cannot be read: {str(error).splitlines()[0]}"
        return InvalidRequest(f"{file}, the state of operator {spec.uid}: {problem}. Nothing was changed.")

    with content_of_scratch(refused):
        if Path(name).suffix == ".csv" and sum(piece.count(b'"') for piece in pieces_of(body)) % 2:
            raise pa.ArrowInvalid("it has an odd number of quotes, as one that was cut off within a quoted value has")
        found, _ = _parsed(name, body, None)
        operator = expected_operator({ONLY_TABLE: found}, spec, loaded.graph, loaded)
        assert operator is not None, "every class is loaded"
        if len(operator.tables) > 1:
            raise InvalidRequest(
                f"operator {spec.uid}: its state has the tables {', '.join(map(repr, operator.tables))}; one table "
                "can be bootstrapped in this version. Nothing was changed.",
                hint="leave count(distinct …) out, and over updates min, max, arg_min, arg_max",
                uid=spec.uid,
            )
        expected = pa.schema([pa.field(field.name, field.type) for field in operator.tables[ONLY_TABLE].schema])
        found, pieces = _parsed(name, body, expected)
        types = {field.name: field.type for field in found}
        wanted = {field.name: field.type for field in expected}
        if types != wanted or len(found) != len(wanted):
            raise _unfit(operator, file, _told_differences(types, wanted) or "a column occurs twice")
        rows = SpilledRows(expected, (piece.select(expected.names).cast(expected) for piece in pieces))
    if not rows.num_rows:
        raise _unfit(operator, file, "it has no rows")
    repeated = rows.num_rows - _distinct_keys(rows, operator.tables[ONLY_TABLE].key)
    if repeated:
        raise _unfit(operator, file, f"{repeated} of its rows repeat the key of another")
    return operator, rows


def _told_differences(types: Mapping[str, pa.DataType], wanted: Mapping[str, pa.DataType]) -> str:
    wrong = sorted(name for name in {*types, *wanted} if types.get(name) != wanted.get(name))
    return ", ".join(f"{one}: {types.get(one, 'absent')}, expected {wanted.get(one, 'absent')}" for one in wrong)


def _distinct_keys(rows: SpilledRows, key: Sequence[str]) -> int:
    """Return how many keys the rows have."""

    def once(keys: pa.Table) -> pa.Table:
        keys = keys.combine_chunks()
        return keys.take(pa.array(np.unique(key_numbers(keys), return_index=True)[1]))

    return sum(keys.num_rows for keys in ordered_rows((piece.select(list(key)) for piece in rows), key, once))


def _parsed(name: str, body: IO[bytes], expected: pa.Schema | None) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the columns of a file, and its rows, some at a time."""
    suffix, source = Path(name).suffix, pa.PythonFile(body, mode="r")
    body.seek(0)
    if suffix == ".parquet":
        file = pq.ParquetFile(source)
        return file.schema_arrow, map(file.read_row_group, range(file.num_row_groups))
    if suffix == ".csv":
        convert = pyarrow.csv.ConvertOptions(
            column_types=expected, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        reading = pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES)
        # Else a quoted newline at which a block happens to end would begin another row, and nothing would say so.
        parsing = pyarrow.csv.ParseOptions(newlines_in_values=True)
        reader = pyarrow.csv.open_csv(source, read_options=reading, parse_options=parsing, convert_options=convert)
        return reader.schema, _batches(reader)
    raise InvalidRequest(f"{name}: expected a file .parquet or .csv. Nothing was changed.")


def _batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in batches)


def _unfit(operator: StatefulOperator, file: str, problem: str) -> InvalidRequest:
    table = operator.tables[ONLY_TABLE]
    columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
    return InvalidRequest(
        f"{file} is no table of the state of operator {operator.uid}: {problem}. Nothing was changed.",
        hint=f"its columns are {columns}; its key is {', '.join(table.key)}, each once",
        uid=operator.uid,
    )


def _snapshot(
    context: JobContext, pending: PendingCheckpoint, hasher: KeyHash, operator: StatefulOperator, rows: SpilledRows
) -> OperatorSnapshot:
    """Write the rows as the state of each subtask, below the pending checkpoint's token."""
    spec, table = context.spec, operator.tables[ONLY_TABLE]
    groups, parallelism = spec.checkpointing.max_parallelism, spec.spark.parallelism
    owned = [key_group_range(groups, parallelism, subtask) for subtask in range(parallelism)]
    per_group = np.full(groups, rows.num_rows * row_bytes(table.schema) * STATE_COPIES // groups, dtype=np.int64)
    slices = [slices_within(own, per_group[own.start : own.stop], _SLICE_BYTES) for own in owned]

    def placed(piece: pa.Table) -> pa.Table:
        return piece.append_column(_GROUP, pa.array(hasher.key_groups(piece, table.routing_key, groups)))

    in_order = ordered_rows(map(placed, rows), [_GROUP])
    parts = _by_slice(in_order, [part for parts in slices for part in parts], table.schema)
    handles = []
    for of_subtask in slices:
        written = [_write(context, pending, hasher, operator, next(parts), part) for part in of_subtask]
        handles.append(joined_handle(written, ()))
    return OperatorSnapshot(
        tables={ONLY_TABLE: StateTableSnapshot(table.key, table.routing_key, table.schema, tuple(handles))},
        firing=(None,) * parallelism,
        channels=(None,) * parallelism,
        processed_bytes=(0,) * parallelism,
        rows_in=0,
        rows_out=0,
        late_rows=0,
    )


def _by_slice(pieces: Iterable[pa.Table], slices: Sequence[range], schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield the rows of each slice of the key groups; they come in the order of those."""
    waiting, following = list[pa.Table](), iter(pieces)
    for part in slices:
        own = []
        while True:
            piece = waiting.pop() if waiting else next(following, None)
            if piece is None:
                break
            inside = int(np.searchsorted(piece.column(_GROUP).to_numpy(), part.stop))
            own.append(piece.slice(0, inside).drop_columns([_GROUP]))
            if inside < piece.num_rows:
                waiting.append(piece.slice(inside))
                break
        yield pa.concat_tables(own) if own else schema.empty_table()


def _write(
    context: JobContext,
    pending: PendingCheckpoint,
    hasher: KeyHash,
    operator: StatefulOperator,
    rows: pa.Table,
    own: range,
) -> StateHandle:
    spec, table = context.spec, operator.tables[ONLY_TABLE]
    keys = KeySpec(table.key, table.routing_key, hasher)
    identity = StateIdentity.of(operator.uid, keys, table.schema, own, spec.checkpointing.max_parallelism)
    state = restore_state(identity, (), CheckpointObjects(context.store, 0, spec.name), watermark_us=None)
    state.upsert(rows)
    directory = state_prefix(pending.checkpoint_id, pending.token, OperatorUid(operator.uid))
    snapshot = state.freeze(None).encode(directory)
    for upload in snapshot.uploads:
        context.store.put(upload.key, upload.body)
    return snapshot.handle
