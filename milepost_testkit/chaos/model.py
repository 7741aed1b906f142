"""The plain model: a job's expected tables, from its attempts, its landed input and the operators' laws.

The rows of a checkpoint are those of the attempts that led to it. Each object is in exactly one of them. DuckDB derives
each node's rows from its input, and a table shows the rows that its node emitted. No attempt is one that a quality gate
should have vetoed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.jobspec.load.load import LoadedJob
from milepost.protocol.log.log_entries import CompletedEpoch, completion_of
from milepost_testkit.chaos.gates import refusals
from milepost_testkit.chaos.repeated_columns import as_tables_show, by_the_law, repeated_columns
from milepost_testkit.chaos.replay import replayed
from milepost_testkit.chaos.tries import Try, read_origin, read_try, runs_on_spark
from milepost_testkit.law.job import Began, check_job
from milepost_testkit.models.data.captured import Captured
from milepost_testkit.rows.tables import assert_same_rows

Lineage = tuple[tuple[int, int], ...]
"""Checkpoints that were made by tries, with the tokens of these, oldest first."""
Landed = Mapping[str, Mapping[str, list[tuple[str, pa.Table]]]]
"""Of each source and object: the versions that have been there (etag, rows), the newest last."""


@dataclass
class Model:
    """The expected contents of a job.

    Attributes:
        folder: where attempts record their rows. renamed: old uid -> current uid.
        inherited: for a fork, the lineage of each checkpoint of the other job, by checkpoint and token.
    """

    folder: Path
    renamed: dict[str, str] = field(default_factory=dict)
    inherited: dict[tuple[int, int], Lineage] = field(default_factory=dict)

    def check(self, job: LoadedJob, landed: Landed) -> int:
        """Check an idle job against the whole model. Returns the number of attempts in its lineage.

        Raises: AssertionError.
        """
        tries = self.tries(job)
        if runs_on_spark(job):
            versions = {name: _versions(objects) for name, objects in landed.items()}
            tries = replayed(job, tries, versions, self.folder.parent / "replay")
        self._check_positions(job, tries, landed)
        graph, captured, shown = job.graph(), Captured(), Captured()
        schemas = {self._now(node): schema for one in tries for node, schema in one.schemas.items()}
        for one in tries:
            fired = {self._now(uid): fired for uid, fired in one.begin.fired.items()}
            captured.begins[one.checkpoint_id] = replace(one.begin, fired=fired)
            assert not (why := list(refusals(one, graph, self._now))), (
                f"checkpoint {one.checkpoint_id} is completed, but {why}"
            )
            for node, stamp_us, rows in one.pieces:
                now = self._now(node)
                captured.add(now, one.checkpoint_id, stamp_us, by_the_law(rows, schemas.get(now, rows.schema)))
                shown.add(now, one.checkpoint_id, stamp_us, as_tables_show(rows, schemas.get(now, rows.schema)))
        older = self._older_than_columns(job, tries)
        lineage = tuple(one.checkpoint_id for one in tries)
        given = {name: shown if name in older else captured for name in graph.sink_inputs}
        check_job(job, captured, schemas, lineage, self._began(job, tries), given.__getitem__)
        return len(tries)

    def tries(self, job: LoadedJob) -> list[Try]:
        """Return the attempts that led to the live head, oldest first."""
        context = JobContext(job)
        head = context.log.head()
        if head is None:
            return []
        lineages = self.lineages(job)
        return [read_try(self.folder, *one) for one in lineages[int(head.state.timeline().head)]]

    def unseen(self, job: LoadedJob) -> set[str]:
        """Return the operators and sinks of the spec that the head's epoch did not have."""
        tries = self.tries(job)
        if not tries:
            return set()
        uids = {one.uid for one in job.spec.operators} - {self._now(uid) for uid in tries[-1].uids}
        known = {self._now(node): schema for node, schema in tries[-1].schemas.items()}
        columns = {uid for uid, name in repeated_columns(job.spec) if uid not in known or name not in known[uid].names}
        return uids | columns | ({one.name for one in job.spec.sinks} - tries[-1].sinks)

    def lineages(self, job: LoadedJob) -> dict[int, Lineage]:
        """Return the lineage of each completed checkpoint. A restored one has the lineage of its original."""
        return self._led(job)[0]

    def by_token(self, job: LoadedJob) -> dict[tuple[int, int], Lineage]:
        """Return lineages by checkpoint and token, as a fork inherits them."""
        return self._led(job)[1]

    def _led(self, job: LoadedJob) -> tuple[dict[int, Lineage], dict[tuple[int, int], Lineage]]:
        """Return the lineages by checkpoint, and by checkpoint and token, including those of earlier jobs."""
        found: dict[int, Lineage] = {0: ()}
        by_token = dict(self.inherited)
        for done in sorted(_completed(job), key=lambda one: one.checkpoint_id):
            number, token = int(done.checkpoint_id), int(done.token)
            if done.imported:
                found[number] = by_token[read_origin(self.folder, number, token)]
            else:
                found[number] = (*found[int(done.parent)], (number, token))
            by_token[number, token] = found[number]
        return found, by_token

    def vetoed_rightly(self, job: LoadedJob, tried: tuple[int, int]) -> bool:
        """Return whether the rows of a vetoed attempt must be vetoed."""
        return any(refusals(read_try(self.folder, *tried), job.graph(), self._now))

    def _check_positions(self, job: LoadedJob, tries: Iterable[Try], landed: Landed) -> None:
        """Check that each object version was read at most once, the newest one was read, and no row changed."""
        tries = list(tries)
        for name, objects in landed.items():
            read = [version for one in tries for version in one.inputs.get(name, ())]
            twice = [version for version, count in Counter(read).items() if count > 1]
            assert not twice, f"source {name} has read {twice} twice"
            known = _versions(objects)
            keys = {key for key, _ in read}
            source = job.spec.sources[name]
            if isinstance(source, FileSourceSpec) and source.on_change == "ignore":
                missed = objects.keys() - keys
            else:
                missed = {key for key, versions in objects.items() if (key, versions[-1][0]) not in read}
            assert not missed, f"source {name} has nothing left to do, and has not read {sorted(missed)}"
            put_out = [rows for one in tries for node, _, rows in one.pieces if node == name]
            if put_out:
                columns = put_out[0].column_names
                expected = pa.concat_tables([known[version] for version in read]).select(columns)
                assert_same_rows(pa.concat_tables(put_out), expected, f"rows of source {name}")

    def _began(self, job: LoadedJob, tries: list[Try]) -> Began:
        """Return since which epoch each operator and sink is present without a gap, if not from the start."""
        uids = [{self._now(uid) for uid in one.uids} for one in tries]
        numbers = [one.checkpoint_id for one in tries]
        operators = {one.uid: _since(one.uid, uids, numbers) for one in job.spec.operators}
        graph, sinks = job.graph(), {}
        for name, sink in graph.sink_inputs.items():
            sinks[name] = _since(name, [one.sinks for one in tries], numbers)
            if sink.mode == "upsert" and graph.nodes[uid := graph.keyed_by(sink.uid)].publishes_state:
                sinks[name] = operators[uid]
        return Began(operators, sinks)

    def _older_than_columns(self, job: LoadedJob, tries: Sequence[Try]) -> set[str]:
        """Return the sinks older than a column of their aggregate. Their old rows were not emitted again for it."""
        numbers, found = [one.checkpoint_id for one in tries], set[str]()
        graph = job.graph()
        for uid, column in repeated_columns(job.spec):
            with_it = [
                {self._now(node) for node, schema in one.schemas.items() if column in schema.names} for one in tries
            ]
            came = _since(uid, with_it, numbers)
            for name, sink in graph.sink_inputs.items():
                if sink.uid == uid and _since(name, [one.sinks for one in tries], numbers) < came:
                    found.add(name)
        return found

    def _now(self, output: str) -> str:
        """Return the current name of an output."""
        return ".".join(self.renamed.get(part, part) for part in output.split("."))


def _versions(objects: Mapping[str, list[tuple[str, pa.Table]]]) -> dict[tuple[str, str], pa.Table]:
    """Return the rows of each version of a source's objects."""
    return {(name, etag): rows for name, versions in objects.items() for etag, rows in versions}


def _completed(job: LoadedJob) -> Iterator[CompletedEpoch]:
    """Yield the log's record of each completed checkpoint."""
    context = JobContext(job)
    if context.log.head() is not None:
        yield from (done for done in map(completion_of, context.log.entries()) if done is not None)


def _since(name: str, there: Sequence[Set[str]], numbers: Sequence[int]) -> int:
    """Return the first epoch from which a name is present without a gap up to the end; 0 if it always was.

    With epochs 4, 5, 7 and the name in the last two, it is 5.
    """
    absent = [place for place, names in enumerate(there) if name not in names]
    return 0 if not absent else numbers[absent[-1] + 1] if absent[-1] + 1 < len(numbers) else numbers[-1] + 1
