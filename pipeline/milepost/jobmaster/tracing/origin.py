"""The origin of an output row: the input rows that made it, and the steps to them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import counted


@dataclass(frozen=True, slots=True)
class OriginStep:
    """One node on the path from the table back to the input.

    Attributes:
        kind: of the operator, or `source`.
        rows: number of its emitted rows that the output row depends on.
        by: columns whose values select them; (): none, so all rows of the node are needed.
    """

    uid: str
    kind: str
    rows: int
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an input row is stored.

    Attributes:
        checkpoint_id: the checkpoint of the epoch that read it. object: key of its object.
        line: line of a text object, from 1, else None. row: row of a Parquet object, from 1, else None.
        message: topic, partition and offset, for a row of a message, else None.
    """

    source: str
    checkpoint_id: int
    object: str
    line: int | None = None
    row: int | None = None
    message: tuple[str, int, int] | None = None

    def __str__(self) -> str:
        if self.message is not None:
            topic, partition, offset = self.message
            return f"topic {topic}, partition {partition}, offset {offset}, read by checkpoint {self.checkpoint_id}"
        at = f"row {self.row}" if self.line is None else f"line {self.line}"
        return f"{self.object}, {at}, read by checkpoint {self.checkpoint_id}"


@dataclass(frozen=True, slots=True)
class OriginInput:
    """Input rows of one source.

    Attributes:
        count: number of rows. listed: the first ones, with their values. places: of the listed rows.
    """

    source: str
    count: int
    listed: pa.Table
    places: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class StartState:
    """State of the row's keys where the replay begins, in the form of `milepost state`.

    Attributes:
        name: of the state table: `uid`, or `uid.table`.
    """

    name: str
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class OriginCut:
    """Where the list begins, if not at the first epoch.

    Attributes:
        checkpoint_id: a retained checkpoint. Rows that it has read are not listed, but are in its state.
        reason: why. state: of the row's keys at this checkpoint.
    """

    checkpoint_id: int
    reason: str
    state: tuple[StartState, ...]

    @property
    def sentence(self) -> str:
        """What the list lacks, and why."""
        return f"cut: {self.reason}. What was read up to checkpoint {self.checkpoint_id} is not listed"


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Where an output row comes from.

    Attributes:
        checkpoint_id: the table as of which was read. epochs: number of epochs that were read again.
        row: the row of the table. copies: number of equal rows.
        is_proven: whether a replay of the listed inputs alone made the row.
        problem: why it is not proven; None if it is.
        steps: from the table to the input; () if the row was published before the cut.
        not_narrowed: sources that were replayed completely, because no column of the row narrows them.
        cut: where the list begins; None: at the first epoch.
        late: clauses about input with the row's values that was late, so that the row was made without it.
    """

    job: str
    sink: str
    checkpoint_id: int
    row: pa.Table
    copies: int
    epochs: int
    is_proven: bool
    problem: str | None
    steps: tuple[OriginStep, ...]
    inputs: tuple[OriginInput, ...]
    not_narrowed: tuple[str, ...]
    cut: OriginCut | None = None
    late: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """What the trace proves, or why it proves nothing, as a clause for people."""
        total = sum(item.count for item in self.inputs)
        if self.is_proven:
            start = "" if self.cut is None else f" from the state at checkpoint {self.cut.checkpoint_id}"
            make = "makes" if total == 1 else "make"
            return f"{counted(total, 'input row')} alone {make} this row{start}"
        return f"{self.problem}{'. The listed input rows are candidates' if total else ''}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was late, and what the trace could not narrow, as clauses for people."""
        notes = [f"not part of it: {'; '.join(self.late)}"] if self.late else []
        if self.not_narrowed:
            notes.append(f"no column of the row narrows {', '.join(self.not_narrowed)}: every row of it was replayed")
        return tuple(notes)
