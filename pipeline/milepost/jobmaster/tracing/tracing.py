"""Trace a row of a table back to the input rows that made it.

1. The recorded input up to the checkpoint is read again, from the first epoch or from a retained checkpoint on. Rows
   that cannot have made the row are dropped: a column that reaches the table unchanged, such as the key, has another
   value.
2. The operators run over the remaining rows, in this process, with the watermarks of all input.
3. A walk back over the rows that each node emitted selects those that the output row depends on.
4. The operators run over these rows alone. The list is proven only if they make the same row.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from milepost.epoch import OBJECT, RECORD, EpochTracer, RowFilter, counted, is_stamp
from milepost.errors import InvalidRequest, NotFound
from milepost.jobmaster.compatibility.spec_check import check_compatible
from milepost.jobmaster.job.code import read_code
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.tables import Tables
from milepost.jobmaster.tracing.origin import OriginCut, OriginInput, OriginStep, RowOrigin
from milepost.jobmaster.tracing.output_row import OutputRow, find_row, known_values
from milepost.jobmaster.tracing.places import find_places
from milepost.jobmaster.tracing.replay import EPOCH, Emitted, ReadEpoch, Replay
from milepost.jobmaster.tracing.selection import KnownValues, selected
from milepost.jobmaster.tracing.starts import find_start, start_state
from milepost.jobmaster.tracing.walk import Alternatives, Follow, LateRows, NodeRows, Walk
from milepost.jobspec.graph import SinkInput
from milepost.operators.base import BAD, REJECTED_COLUMNS
from milepost.protocol.records import CheckpointId, CompletedCheckpoint
from milepost.quality import rule_label
from milepost.spill import SpilledRows

MOST_ROWS = 1_000_000
"""Maximum number of input rows of a trace, which one process replays."""

_NAMED = 3
"""Maximum number of late rows of one operator in a message."""


@dataclass(frozen=True, slots=True)
class TraceLimits:
    """Limits of one trace.

    Attributes:
        seconds: time after which it stops. rows: number of rows of each source that are listed.
        since: a retained checkpoint to begin at; None: the first epoch, if its input can be read.
    """

    seconds: float = 600
    rows: int = 20
    since: int | None = None


class Tracing:
    """Traces rows of a job's tables. Writes nothing: no manifest, no lease, no object of the job."""

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def origin(
        self,
        sink: str,
        values: Mapping[str, str],
        tracer: EpochTracer,
        at: int | None = None,
        limits: TraceLimits | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> RowOrigin:
        """Return the input rows that made a row of a table.

        Args:
            values: column -> value as text; they identify one row.
            at: a retained checkpoint; None: the head.
            progress: called with the name of each step that begins.
        Raises:
            NotFound: no such sink, checkpoint or row. The message lists input rows that were late.
            InvalidRequest: rows of this sink cannot be traced, several rows match, or the input is not recorded.
            SourceChanged: recorded input was deleted or has changed. StateCorrupt: a record cannot be read.
        """
        context, limits, progress = self._context, limits or TraceLimits(), progress or _quiet
        until = time.monotonic() + limits.seconds
        context.sink(sink)
        tables = Tables(context)
        checkpoint = tables.checkpoint(at)
        sink_input = _judged(context, sink)
        _check_supported(context, sink_input)

        def read() -> SpilledRows:
            return tables.read(sink, int(checkpoint.checkpoint_id))

        progress(f"find the row in table {sink}")
        schema = read().schema
        names = [name for name in schema.names if sink_input.sink == sink or name not in REJECTED_COLUMNS]
        known = known_values(sink, schema, values)
        row = find_row(sink, read, known, names)
        with tempfile.TemporaryDirectory(prefix="milepost-why-") as folder:
            trace = _Trace(context, sink_input, checkpoint, tracer, limits, until, Path(folder), progress)
            if row is not None:
                return replace(trace.origin(row, sink), sink=sink)
            at_id = checkpoint.checkpoint_id
            message = f"sink {sink}: its table has no row with the given {', '.join(values)} at checkpoint {at_id}"
            raise NotFound(
                f"{message}{trace.why_absent(known)}",
                hint=_refused_hint(context, sink),
                sink=sink,
                checkpoint_id=int(at_id),
            )


def _quiet(_: str) -> None:
    return None


def _judged(context: JobContext, sink: str) -> SinkInput:
    """Return the input of a sink; of a sink of rejected rows, that of the sink whose rules rejected them."""
    inputs = context.graph.sink_inputs
    return inputs[inputs[sink].rejected_by or sink]


def _refused_hint(context: JobContext, sink: str) -> str:
    """Return the tables of rejected rows of a sink, and its rules that drop rows, as a hint; "": it has no rules."""
    readers = [rows.sink for rows in context.graph.sink_inputs.values() if rows.rejected_by == sink]
    suites = [suite for suite in context.spec.quality if suite.sink == sink]
    drop = [rule_label(rule) for suite in suites for rule in suite.row_rules.values() if rule.on_fail == "drop"]
    hints = [f"a rule may have rejected it: check table {' or '.join(readers)}"] if readers else []
    if drop:
        hints.append(f"rule {' or '.join(drop)} (on_fail: drop) may have dropped it, and a dropped row is in no table")
    return "; ".join(hints)


def _check_supported(context: JobContext, sink: SinkInput) -> None:
    """Check that rows of a sink can be traced. Raises InvalidRequest."""
    problem, hint = None, ""
    if sink.part == BAD:
        problem = "tracing records that could not be read is not available in this version"
        hint = "each row of its table has the object and line of its record"
    elif sink.mode == "changelog":
        problem = "tracing the rows of a changelog is not available in this version"
        hint = "trace a row of the table whose changes it has"
    if problem is not None:
        raise InvalidRequest(f"job {context.spec.name}: sink {sink.sink}: {problem}. Nothing was read.", hint=hint)


class _Trace:
    """One trace.

    Args:
        until: when it stops, in seconds of the monotonic clock; checked before each epoch is read or run.
        folder: local folder for the state of replays.
        progress: called with the name of each step that begins.
    """

    def __init__(
        self,
        context: JobContext,
        sink: SinkInput,
        checkpoint: CompletedCheckpoint,
        tracer: EpochTracer,
        limits: TraceLimits,
        until: float,
        folder: Path,
        progress: Callable[[str], None],
    ) -> None:
        self._context, self._sink, self._checkpoint = context, sink, checkpoint
        self._at = checkpoint.checkpoint_id
        code = read_code(context)
        loaded = code.load(context)
        self._progress, self._step_name = progress, ""
        progress("check the recorded input")
        self._limits, self._until = limits, until
        self._start = find_start(context, self._at, limits.since)
        check_compatible(context, self._start.base, code, loaded)
        self._replay = Replay(context, code, loaded, tracer, self._start.base, folder, self._check_time)
        self._walk = Walk(context.spec, loaded.graph, sink.sink)
        self._graph = loaded.graph
        self._retained = 0

    def origin(self, row: OutputRow, table: str) -> RowOrigin:
        """Return where a row comes from. table: name of the sink whose table has the row."""
        known = KnownValues.of(row.row)
        needed = self._walk.narrowed(known)
        epochs = self._read(needed)
        emitted = self._run(epochs)
        is_made = row.is_made_by(self._sink, emitted)
        problem = None if is_made else self._published_before(row, table, emitted)
        found: list[NodeRows] = []
        is_proven = False
        key = self._sink.key if not is_made and self._sink.key else row.row.column_names
        start = self._walk.start(KnownValues.of(row.row.select(list(key))))
        for follow in Follow if problem is None else ():
            found = self._walk.traced(start, emitted, follow)
            alone = self._run(epochs, _only(found)) if is_made else {}
            is_proven = is_made and row.is_made_by(self._sink, alone)
            if is_proven:
                break
        streams = [rows for rows in found if rows.uid in self._context.spec.streams]
        return RowOrigin(
            job=self._context.spec.name,
            sink=self._sink.sink,
            checkpoint_id=int(self._at),
            row=row.shown,
            copies=row.copies,
            epochs=len(epochs),
            is_proven=is_proven,
            problem=None if is_proven else problem or self._problem(is_made=is_made),
            steps=tuple(self._step(rows) for rows in found),
            inputs=tuple(self._input(rows, epochs) for rows in streams),
            cut=self._cut(needed),
            not_narrowed=tuple(rows.uid for rows in streams if any(not one.columns for one in needed[rows.uid])),
            late=tuple(self._late(needed, epochs, emitted)),
        )

    def why_absent(self, known: KnownValues) -> str:
        """Return a clause about late input rows with these values, which the table lacks; ".": there are none."""
        needed = self._walk.narrowed(known)
        if not any(self._narrowed_late(needed)):
            return "."
        epochs = self._read(needed)
        texts = [*self._late(needed, epochs, self._run(epochs))]
        return f". Input with these values was late, so it is not in the table: {'. '.join(texts)}." if texts else "."

    def _narrowed_late(self, needed: Alternatives) -> Iterator[LateRows]:
        """Yield the late rows that the row would depend on, where its values narrow them."""
        for of_input in self._walk.late(needed):
            if all(one.columns for one in of_input.alternatives):
                yield of_input

    def _late(self, needed: Alternatives, epochs: Sequence[ReadEpoch], emitted: Emitted) -> Iterator[str]:
        """Yield a clause for each operator that ignored late input of the row, with the first places."""
        for of_input in self._narrowed_late(needed):
            rows = of_input.among(emitted)
            if not rows.num_rows:
                continue
            found = self._walk.traced({of_input.input: [KnownValues.of(rows)]}, emitted, Follow.ALL)
            inputs = [self._input(one, epochs) for one in found if one.uid in self._context.spec.streams]
            places = [str(place) for item in inputs for place in item.places][:_NAMED]
            were = "was" if rows.num_rows == 1 else "were"
            yield f"{counted(rows.num_rows, 'row')} {were} late at operator {of_input.uid}: {'; '.join(places)}"

    def _read(self, needed: Mapping[str, Sequence[KnownValues]]) -> list[ReadEpoch]:
        """Read the rows of every epoch that may be needed."""

        def retain(source: str, rows: pa.Table) -> pa.Table:
            return self._retain(source, rows, needed)

        self._step_name = "read the input of"
        return self._replay.read(self._start.ranges, retain)

    def _run(self, epochs: Sequence[ReadEpoch], retain: RowFilter | None = None) -> Emitted:
        """Replay the epochs. retain: as in `Replay.run`."""
        self._step_name = "replay" if retain is None else "replay the listed rows of"
        return self._replay.run(epochs, retain)

    def _published_before(self, row: OutputRow, table: str, emitted: Mapping[str, Sequence[pa.Table]]) -> str | None:
        """Return the problem that the row was published before the replay begins; None: it was not."""
        if self._start.base is None:
            return None
        base = int(self._start.base.checkpoint_id)
        try:
            rows = Tables(self._context).read(table, base)
        except NotFound:  # the sink had no table yet
            return None
        known = KnownValues.of(row.row)
        copies = row.copies_among([selected(row.columns_of(piece), [known]) for piece in rows])
        made = emitted.get(self._sink.output, ())
        if self._sink.mode == "upsert":
            of_key = KnownValues.of(row.row.select(list(self._sink.key)))
            copies = 0 if any(selected(piece, [of_key]).num_rows for piece in made) else copies
        elif copies + row.copies_among(made) != row.copies:
            return None
        if not copies:
            return None
        of_all = f"{copies} of {row.copies} copies were " if copies < row.copies else ""
        return f"{of_all}published by checkpoint {base}, before the cut; its input is not listed"

    def _cut(self, needed: Mapping[str, Sequence[KnownValues]]) -> OriginCut | None:
        base, reason = self._start.base, self._start.reason
        if base is None or reason is None:
            return None
        return OriginCut(int(base.checkpoint_id), reason, start_state(self._context, self._graph, base, needed))

    def _retain(self, source: str, rows: pa.Table, narrowed: Mapping[str, Sequence[KnownValues]]) -> pa.Table:
        """Return the rows of a source that the row may depend on. Raises InvalidRequest: they are too many."""
        retained = selected(rows, narrowed.get(source, ()))
        self._retained += retained.num_rows
        if self._retained > MOST_ROWS:
            raise InvalidRequest(
                f"job {self._context.spec.name}: more than {MOST_ROWS:,} input rows may have made this row, which are "
                "too many to replay in one process. Nothing was changed.",
                hint="trace a row of a table whose key is part of the input",
            )
        return retained

    def _check_time(self, next_id: CheckpointId) -> None:
        """Show the next step. Raises InvalidRequest: the time limit has passed."""
        self._progress(f"{self._step_name} checkpoint {next_id} of {self._at}")
        if time.monotonic() > self._until:
            raise InvalidRequest(
                f"job {self._context.spec.name}: the trace was cut after {self._limits.seconds:g} s, at the "
                f"input of checkpoint {next_id} of {self._at}. There is no list, because it "
                "cannot be proven without that input. Nothing was changed.",
                hint="milepost why takes --time-limit SECONDS, and --since ID to begin at a retained checkpoint",
                checkpoint_id=int(next_id),
            )

    def _problem(self, *, is_made: bool) -> str:
        """Return why the list is not proven."""
        if is_made:
            return "the operators make a different row from the listed rows alone than from all input"
        if self._context.metadata(self._checkpoint).in_flight_bytes:
            return f"rows were in flight at checkpoint {self._at}: its table did not show them yet, and a replay does"
        return (
            "a replay of all recorded input with the current spec and code makes a different row: the spec or the code "
            "has changed since, a function is not deterministic, or the result depends on the order of rows from "
            "several subtasks, and a replay has one"
        )

    def _step(self, found: NodeRows) -> OriginStep:
        return OriginStep(found.uid, self._graph.nodes[found.uid].kind, found.rows.num_rows, found.by)

    def _input(self, found: NodeRows, epochs: Sequence[ReadEpoch]) -> OriginInput:
        order = [(EPOCH, "ascending"), (OBJECT, "ascending"), (RECORD, "ascending")]
        rows = found.rows.sort_by(order) if found.rows.num_rows else found.rows
        listed = rows.slice(0, min(self._limits.rows, rows.num_rows))  # slicing a table without columns would add rows
        places = find_places(self._context, found.uid, listed, epochs)
        added = (EPOCH, OBJECT, RECORD)
        names = [name for name in listed.column_names if name not in added and not is_stamp(name)]
        return OriginInput(found.uid, rows.num_rows, listed.select(names), places)


def _only(found: Sequence[NodeRows]) -> Callable[[str, pa.Table], pa.Table]:
    """Return a filter that retains the selected rows of each source."""
    ids = {rows.uid: set(_ids(rows.rows)) for rows in found if OBJECT in rows.rows.column_names}

    def only(source: str, rows: pa.Table) -> pa.Table:
        of_source = ids.get(source, set())
        return rows.filter(pa.array([item in of_source for item in _ids(rows)], pa.bool_()))

    return only


def _ids(rows: pa.Table) -> Iterator[tuple[int, str, int]]:
    return zip(*(rows.column(name).to_pylist() for name in (EPOCH, OBJECT, RECORD)), strict=True)
