"""Checks of a spec that parse no SQL, so they are cheap enough for DAG files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from milepost.jobspec.graph.message_checks import message_problems
from milepost.jobspec.graph.row_rule_checks import missing_rejected_output, rejected_outputs, row_rule_problems
from milepost.jobspec.graph.secret_checks import secret_problems
from milepost.jobspec.graph.sink_checks import sink_problems
from milepost.jobspec.graph.static_rules import static_problems
from milepost.jobspec.graph.table_checks import table_problems
from milepost.jobspec.job.environment import reference_problems
from milepost.jobspec.job.sources.delta_source import DeltaSourceSpec
from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec
from milepost.jobspec.job.sources.milepost_source import MilepostSourceSpec
from milepost.jobspec.job.sources.postgres_source import PostgresSourceSpec
from milepost.jobspec.job.sources.source_spec import SourceSpec
from milepost.jobspec.job.spec import JobSpec
from milepost.language import (
    SOURCE_FORMATS,
    Path,
    Problem,
    check_node_name,
    conf_problems,
    did_you_mean,
    expectation_problem,
    remote_problem,
)
from milepost.language.times import format_duration
from milepost.operators.base import BAD, LATE, OperatorSpec, RowWiseSpec, edge_names, late_output
from milepost.protocol.records import endpoint_problem, location_problem

_BAD_KEYS = ("max_bad_ratio", "min_rows", "max_bad_records", "on_bad_object")


def structure_problems(spec: JobSpec) -> list[Problem]:
    """Return the problems of a spec that can be found without parsing SQL."""
    return [
        *reference_problems(spec),
        *step_name_problems(spec),
        *_names(spec),
        *_renames(spec),
        *_inputs(spec),
        *_cycles(spec),
        *_quality(spec),
        *row_rule_problems(spec),
        *sink_problems(spec),
        *secret_problems(spec),
        *source_problems(spec),
        *static_problems(spec),
        *_locations(spec),
        *_sizes(spec),
        *_spark(spec),
        *_schedule(spec),
    ]


def step_name_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each operator name that is reserved for compiled statements."""
    for index, operator in enumerate(spec.operators):
        if "__" in operator.uid and operator.uid.partition("__")[0] not in spec.statements:
            try:
                check_node_name(operator.uid)
            except ValueError as problem:
                yield Problem(("operators", index, "uid"), str(problem))


def node_names(spec: JobSpec) -> list[str]:
    """Return the names of all sources and operators."""
    return [*spec.sources, *(operator.uid for operator in spec.operators)]


_WITH_LATE_ROWS = (
    "late rows exist only for window, join and asof (`<uid>.late.<input>`), and for deduplicate and latest with a ttl"
)


def late_outputs(spec: JobSpec) -> dict[str, tuple[str, int]]:
    """Return late output -> (operator uid, position of the input that its rows come from)."""
    outputs = ((operator.uid, late_outputs_of(operator)) for operator in spec.operators)
    return {output: (uid, at) for uid, late in outputs for at, output in enumerate(late)}


def late_outputs_of(operator: OperatorSpec) -> list[str]:
    """Return the late outputs of an operator, in the order of its inputs; [] if it has none."""
    edges = edge_names(operator.inputs)
    return [late_output(operator.uid, edges, at) for at in range(len(edges))] if operator.has_late_rows else []


def bad_outputs(spec: JobSpec) -> list[str]:
    """Return the `<source>.bad` outputs that exist."""
    return [name + BAD for name, source in spec.sources.items() if source.bad_record_rules is not None]


def _names(spec: JobSpec) -> Iterator[Problem]:
    seen = dict.fromkeys(spec.sources, "a source")
    for index, operator in enumerate(spec.operators):
        if operator.uid in seen:
            yield Problem(
                ("operators", index, "uid"), f"the name {operator.uid} is already used by {seen[operator.uid]}"
            )
        seen.setdefault(operator.uid, "an operator")
    sinks: set[str] = set()
    for index, sink in enumerate(spec.sinks):
        if sink.name in sinks:
            yield Problem(("sinks", index, "name"), f"the name {sink.name} is already used by another sink")
        sinks.add(sink.name)
    for name, source in spec.sources.items():
        yield from _columns(("sources", name, "schema"), source.column_names)
    for index, operator in enumerate(spec.operators):
        yield from _columns(("operators", index), operator.named_columns)


def _renames(spec: JobSpec) -> Iterator[Problem]:
    uids = {operator.uid for operator in spec.operators}
    taken: dict[str, str] = {}
    for index, operator in enumerate(spec.operators):
        former = None if isinstance(operator, RowWiseSpec) else operator.renamed_from
        if former is None:
            continue
        path: Path = ("operators", index, "renamed_from")
        if former in uids:
            yield Problem(path, f"{former} is an operator of this spec, which keeps its state")
        elif former in taken:
            yield Problem(path, f"{taken[former]} already takes over the state of {former}")
        taken.setdefault(former, operator.uid)
    yield from _source_renames(spec)


def _source_renames(spec: JobSpec) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, source in spec.landed.items():
        former, path = source.renamed_from, ("sources", name, "renamed_from")
        if former is None:
            continue
        if former in spec.sources:
            yield Problem(path, f"{former} is a source of this spec, which keeps its log")
        elif former in taken:
            yield Problem(path, f"{taken[former]} already continues the log of {former}")
        taken.setdefault(former, name)


def _columns(path: Path, names: Sequence[str]) -> Iterator[Problem]:
    folded: set[str] = set()
    for name in names:
        if name.casefold() in folded:
            yield Problem(path, f"the column {name} occurs twice; names that differ only in case are the same")
        folded.add(name.casefold())


def _inputs(spec: JobSpec) -> Iterator[Problem]:
    nodes = node_names(spec)
    late, bad, rejected = [*late_outputs(spec)], bad_outputs(spec), [*rejected_outputs(spec)]
    for index, operator in enumerate(spec.operators):
        for position, name in enumerate(operator.inputs):
            if name in (*late, *bad, *rejected):
                message = f"{name} can be read only by a sink"
                yield Problem(("operators", index, "inputs", position), message)
            elif name not in nodes:
                yield Problem(
                    ("operators", index, "inputs", position), f"there is no {name}; {did_you_mean(name, nodes)}"
                )
    for index, sink in enumerate(spec.sinks):
        if sink.input in (*nodes, *late, *bad, *rejected):
            continue
        source = sink.input.removesuffix(BAD)
        if sink.input.endswith(LATE) and sink.input.removesuffix(LATE) in nodes:
            message = f"{sink.input} does not exist: {_WITH_LATE_ROWS}"
        elif sink.input.endswith(BAD) and source in spec.sources:
            message = f"{sink.input} does not exist: {_no_bad_records(spec, source)}"
        elif (missing := missing_rejected_output(spec, sink.input)) is not None:
            message = missing
        else:
            message = f"there is no {sink.input}; {did_you_mean(sink.input, [*nodes, *late, *bad, *rejected])}"
        yield Problem(("sinks", index, "input"), message)


def _no_bad_records(spec: JobSpec, source: str) -> str:
    if isinstance(spec.sources[source], FileSourceSpec | KafkaSourceSpec):
        return f"sources.{source} needs `bad_records: dead_letter`"
    return f"the rows of sources.{source} are checked when they are landed"


def _cycles(spec: JobSpec) -> Iterator[Problem]:
    inputs = {operator.uid: operator.inputs for operator in spec.operators}
    done: set[str] = set()
    for start in inputs:
        trail: list[str] = []
        unread = [iter([start])]
        while unread:
            name = next(unread[-1], None)
            if name is None:
                unread.pop()
                done.update(trail[-1:])
                del trail[-1:]
            elif name in trail:
                cycle = trail[trail.index(name) :]
                index = next(i for i, operator in enumerate(spec.operators) if operator.uid == name)
                yield Problem(("operators", index, "inputs"), f"a cycle: {' <- '.join([*cycle, name])}")
            elif name in inputs and name not in done:
                trail.append(name)
                unread.append(iter(inputs[name]))


def _quality(spec: JobSpec) -> Iterator[Problem]:
    names = [sink.name for sink in spec.sinks]
    seen: set[str] = set()
    for index, suite in enumerate(spec.quality):
        of_sink: Path = ("quality", index, "sink")
        if suite.sink not in names:
            yield Problem(of_sink, f"there is no sink {suite.sink}; {did_you_mean(suite.sink, names)}")
        elif suite.sink in seen:
            yield Problem(of_sink, f"{suite.sink} already has a suite; write all its expectations in one suite")
        seen.add(suite.sink)
        for number, expectation in enumerate(suite.expectations):
            problem = expectation_problem(expectation.type, expectation.arguments)
            if problem is not None:
                argument, message = problem
                path: Path = ("quality", index, "expectations", number, argument or "type")
                yield Problem(path, message, at_key=argument is not None)


def source_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of sources, which do not depend on operators and sinks."""
    for name, files in spec.files.items():
        yield from _file_source(name, files)
    sources: Mapping[str, SourceSpec] = spec.sources
    for name, source in sources.items():
        if isinstance(source, FileSourceSpec | KafkaSourceSpec):
            yield from _bad_record_keys(name, source)
        if isinstance(source, KafkaSourceSpec):
            yield from message_problems(("sources", name), source)
        if isinstance(source, PostgresSourceSpec):
            yield from table_problems(("sources", name), source)
        path: Path = ("sources", name, "event_time")
        if source.event_time is None:
            if source.watermark_delay:
                yield Problem(path[:-1], "`watermark_delay` needs `event_time`: name the event time column")
            if source.max_event_time_ahead is not None and "max_event_time_ahead" in source.model_fields_set:
                message = "`max_event_time_ahead` needs `event_time`: name the event time column"
                yield Problem(("sources", name, "max_event_time_ahead"), message)
            if source.idle_timeout is not None:
                message = "`idle_timeout` needs `event_time`: without a watermark the source holds nothing back"
                yield Problem(("sources", name, "idle_timeout"), message)
            continue
        column = source.event_time.column
        type_ = source.columns.get(column)
        if type_ is None:
            yield Problem(path, f"the schema has no column {column}; {did_you_mean(column, source.columns)}")
        elif (problem := source.event_time.problem(type_)) is not None:
            key, message = problem
            yield Problem(path if key is None else (*path, key), message)


def _bad_record_keys(name: str, source: FileSourceSpec | KafkaSourceSpec) -> Iterator[Problem]:
    for key in _BAD_KEYS:
        if key not in source.model_fields_set:
            continue
        if source.bad_records != "dead_letter":
            yield Problem(("sources", name, key), f"`{key}` needs `bad_records: dead_letter`")
        elif key == "min_rows" and source.max_bad_ratio is None:
            yield Problem(("sources", name, key), "`min_rows` needs `max_bad_ratio`")


def _file_source(name: str, source: FileSourceSpec) -> Iterator[Problem]:
    if source.forget_after is not None and source.on_missing == "skip":
        message = (
            "`forget_after` cannot be combined with `on_missing: skip`: an object that reappears may be too old to "
            "tell whether it was consumed"
        )
        yield Problem(("sources", name, "forget_after"), message)
    format_ = SOURCE_FORMATS[source.format]
    for option, value in source.options.items():
        problem = format_.option_problem(option, value)
        if problem is None and option == "column_names" and value:
            unnamed = next((column for column in source.columns if column not in value), None)
            problem = None if unnamed is None else f"the declared column {unnamed} is missing"
        if problem:
            yield Problem(("sources", name, "options", option), problem)
    yield from _optional_columns(name, source)
    if source.settle and "settle" in source.model_fields_set and source.path.startswith("s3://"):
        message = "`settle` applies only to local paths: an S3 object appears atomically; remove it"
        yield Problem(("sources", name, "settle"), message)
    for column, type_ in source.columns.items():
        problem = format_.type_problem(type_)
        if problem:
            yield Problem(("sources", name, "schema", column), problem)
    for column, type_ in source.partitions.items():
        if type_.is_nested or type_.kind == "binary":
            message = f"a path segment cannot be a {type_}; use a number, bool, string, date or timestamp"
            yield Problem(("sources", name, "partitions", column), message)


def _optional_columns(name: str, source: FileSourceSpec) -> Iterator[Problem]:
    path: Path = ("sources", name, "optional_columns")
    if source.optional_columns and source.options.get("column_names"):
        message = "`optional_columns` cannot be combined with `options.column_names`, which apply to every object"
        yield Problem(path, message, at_key=True)
    for position, column in enumerate(source.optional_columns):
        if column in source.optional_columns[:position]:
            yield Problem((*path, position), f"{column} occurs twice")
        elif column in source.partitions:
            yield Problem((*path, position), f"{column} is in `partitions`: see `on_bad_name` for a key without it")
        elif column not in source.columns:
            message = f"the schema has no column {column}; {did_you_mean(column, source.columns)}"
            yield Problem((*path, position), message)
        elif column == source.time_column:
            yield Problem((*path, position), f"{column} is the event time, which cannot be null; remove it")


def _locations(spec: JobSpec) -> Iterator[Problem]:
    texts: list[tuple[Path, str]] = [(("storage",), spec.storage)]
    texts += [
        (("sources", name, "path"), source.path)
        for name, source in spec.sources.items()
        if isinstance(source, FileSourceSpec | DeltaSourceSpec | MilepostSourceSpec)
    ]
    texts += [
        (("sources", name, "storage"), source.storage)
        for name, source in spec.sources.items()
        if isinstance(source, MilepostSourceSpec) and source.storage is not None
    ]
    texts += [(("sinks", index, "path"), sink.path) for index, sink in enumerate(spec.sinks) if sink.path is not None]
    for path, text in texts:
        problem = None if "${env:" in text else location_problem(text)
        if problem:
            yield Problem(path, problem)
    endpoint = spec.store.endpoint_url
    problem = None if "${env:" in endpoint else endpoint_problem(endpoint)
    if problem:
        yield Problem(("store", "endpoint_url"), problem)
    if spec.store.conn_id is not None:
        for key in sorted(spec.store.model_fields_set - {"conn_id"}):
            yield Problem(("store", key), "`conn_id` already determines it; remove one of them")


def _sizes(spec: JobSpec) -> Iterator[Problem]:
    groups = spec.checkpointing.max_parallelism
    if spec.spark.parallelism > groups:
        message = f"expected at most checkpointing.max_parallelism, {groups}, got {spec.spark.parallelism}"
        yield Problem(("spark", "parallelism"), message)
    checkpointing = spec.checkpointing
    if checkpointing.max_in_flight is not None and not checkpointing.cuts_epochs:
        message = "needs aligned_timeout or epoch_budget: without them no rows are left in flight"
        yield Problem(("checkpointing", "max_in_flight"), message)
    for key in ("aligned_timeout", "epoch_budget"):
        limit = getattr(checkpointing, key)
        if limit is not None and limit >= checkpointing.timeout:
            message = f"expected less than checkpointing.timeout, {format_duration(checkpointing.timeout)}"
            yield Problem(("checkpointing", key), f"{message}, got {format_duration(limit)}")


def _spark(spec: JobSpec) -> Iterator[Problem]:
    remote = spec.spark.remote
    if remote is not None and "${env:" not in remote:
        problem = remote_problem(remote)
        if problem:
            yield Problem(("spark", "remote"), problem)
    keys = spec.spark.model_fields_set & {"master", "remote", "conn_id"}
    if spec.spark.conn_id is not None and "remote" in keys:
        yield Problem(("spark", "remote"), "`conn_id` already determines the address; remove one of them")
    elif "master" in keys and (spec.spark.conn_id is not None or (remote is not None and "${env:" not in remote)):
        server = "`conn_id`" if spec.spark.conn_id is not None else "`remote`"
        yield Problem(("spark", "master"), f"the server of {server} has its own master; remove `master`")
    for key, message in conf_problems(spec.spark.master, spec.spark.conf):
        yield Problem(("spark", "conf", key), message, at_key=True)


def _schedule(spec: JobSpec) -> Iterator[Problem]:
    if (schedule := spec.schedule) is None:
        return
    events = ("asset", "any_of", "sqs")
    triggers = [key for key in events if getattr(schedule, key) is not None]
    if len(triggers) > 1 or not (triggers or schedule.cron):
        message = f"expected cron, one of {', '.join(events)}, or both, got {' and '.join(triggers) or 'none'}"
        yield Problem(("schedule",), message)
    elif schedule.cron is None and "timezone" in schedule.model_fields_set:
        yield Problem(("schedule", "timezone"), f"a time zone applies to `cron`, not to `{triggers[0]}`")
