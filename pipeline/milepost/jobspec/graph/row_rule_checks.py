"""Check `on_fail` of expectations, and the sinks that read the rejected rows of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from milepost.jobspec.job.spec import Expectation, JobSpec, QualitySpec, SinkSpec
from milepost.language import ColumnType, Path, Problem, expectation_problem, not_available, row_rule_problem
from milepost.operators.base import REJECTED, REJECTED_COLUMNS


def rejected_outputs(spec: JobSpec) -> dict[str, str]:
    """Return rejected output -> the sink that it has the quarantined rows of."""
    return {suite.sink + REJECTED: suite.sink for suite in spec.quality if suite.quarantines}


def missing_rejected_output(spec: JobSpec, output: str) -> str | None:
    """Return why a `<sink>.rejected` does not exist, or None if the name is not one of a sink."""
    name = output.removesuffix(REJECTED)
    if not output.endswith(REJECTED) or all(sink.name != name for sink in spec.sinks):
        return None
    return f"{output} does not exist: no expectation of sink {name} has `on_fail: quarantine`"


def row_rule_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of row rules that are found without the types of columns."""
    sinks = {sink.name: sink for sink in spec.sinks}
    read = {sink.input for sink in spec.sinks}
    for index, suite in enumerate(spec.quality):
        sink = sinks.get(suite.sink)
        for number, rule in suite.row_rules.items():
            path: Path = ("quality", index, "expectations", number)
            if expectation_problem(rule.type, rule.arguments) is not None:
                continue
            if sink is not None and (refusal := _refused_sink(sink, rule)) is not None:
                yield Problem((*path, "on_fail"), refusal)
                continue
            problem = row_rule_problem(rule.type, rule.arguments, rule.on_fail, None)
            if problem is not None:
                yield Problem((*path, problem[0] or "type"), problem[1])
            if "severity" in rule.model_fields_set and not rule.may_be_unmet:
                message = (
                    f"it has no effect without `mostly`: with `on_fail: {rule.on_fail}`, any number of rows may fail"
                )
                yield Problem((*path, "severity"), message)
        if sink is not None and suite.quarantines and suite.sink + REJECTED not in read:
            first = next(number for number, rule in suite.row_rules.items() if rule.on_fail == "quarantine")
            message = f"`on_fail: quarantine` needs a sink with `input: {suite.sink}{REJECTED}` and `mode: append`"
            yield Problem(("quality", index, "expectations", first, "on_fail"), message)


def _refused_sink(sink: SinkSpec, rule: Expectation) -> str | None:
    refusal = f"{not_available(f'on_fail: {rule.on_fail}')} for sink {sink.name}"
    if sink.input.endswith(REJECTED):
        return f"{refusal}, whose rows are rejected already"
    if sink.mode != "append":
        return (
            f"{refusal} with mode: {sink.mode}: readers would see an older row of a key, or miss a change; filter the "
            f"rows upstream with `WHERE` in a `sql` operator, or put the rule on a sink with mode: append"
        )
    return None


def row_rule_type_problems(suite: QualitySpec, columns: Mapping[str, ColumnType | None], path: Path) -> list[Problem]:
    """Return the problems of row rules with the types of columns. Unknown types are checked in the epoch."""
    problems = []
    for name in columns if suite.quarantines else ():
        if name.lower() in REJECTED_COLUMNS:  # some formats do not distinguish cases
            message = f"sink {suite.sink} has a column {name}, which its rejected rows add; rename it"
            problems.append(Problem((*path, "sink"), message))
    for number, rule in suite.row_rules.items():
        type_ = columns.get(str(rule.arguments.get("column")))
        problem = None if type_ is None else row_rule_problem(rule.type, rule.arguments, rule.on_fail, type_)
        if problem is not None:
            problems.append(Problem((*path, "expectations", number, problem[0] or "type"), problem[1]))
    return problems
