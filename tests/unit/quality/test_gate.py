"""The quality gate: what vetoes, what is recorded, what is refused before anything runs."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
import tracemalloc
from dataclasses import replace
from datetime import date
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest

from milepost.codec.records import from_json, to_json
from milepost.epoch.plan import EpochPlan
from milepost.errors import (
    EnvironmentUnusable,
    InvalidRequest,
    QualityGateFailed,
    StateCorrupt,
    StoreUnavailable,
)
from milepost.jobmaster import Session
from milepost.jobspec.job.spec import QualitySpec
from milepost.language.expectations import ARGUMENTS, COMMON, SET_BY_THE_GATE, expectation_problem
from milepost.quality.gate import check_suite, evaluate, resolve_suite
from milepost.quality.gx import start_loading
from milepost.quality.verdict import ExpectationResult, GateVerdict, Verdict, VerdictStatus
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner

IN_RANGE = {"type": "expect_column_values_to_be_between", "column": "v", "min_value": 0, "max_value": 10}
NOT_NULL = {"type": "expect_column_values_to_not_be_null", "column": "v"}
RAISES = {"type": "expect_column_values_to_match_regex", "column": "s", "regex": "("}
GOOD = pa.table({"v": [1, 2, 3], "s": ["a", "b", "c"]})
BAD = pa.table({"v": [1, 2, 11], "s": ["a", "b", "c"]})


def suite(*expectations: dict[str, object], sink: str = "carriers") -> QualitySpec:
    return QualitySpec.model_validate({"sink": sink, "expectations": list(expectations)})


def test_one_bad_row_among_300_000_vetoes() -> None:
    """Issue: the last row of the last object; counted, not shown."""
    values = np.ones(300_000, dtype=np.int64)
    values[-1] = 987654321
    verdict = evaluate(suite(IN_RANGE), pa.table({"v": values}))
    assert verdict.status is VerdictStatus.FAILED and verdict.status.vetoes
    assert verdict.rows == 300_000
    assert verdict.expectations[0].observed["unexpected_count"] == 1
    assert "987654321" not in json.dumps(to_json(verdict))


@pytest.mark.deep
def test_judged_rows_are_freed_although_the_library_leaves_reference_cycles() -> None:
    """Its objects refer to one another, so that only a collection takes them: here there is none."""
    table = pa.table({"k": np.arange(200_000), "v": np.ones(200_000, np.int64)})
    spec = suite(IN_RANGE, NOT_NULL, {"type": "expect_column_values_to_be_unique", "column": "k"})
    evaluate(spec, table)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        held = []
        for _ in range(5):
            evaluate(spec, table)
            held.append(pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        gc.enable()
    assert (held[-1] - held[0]) / 4 < table.nbytes, "of each judgement less stays than its rows"


def test_rows_that_meet_every_expectation_pass() -> None:
    verdict = evaluate(suite(IN_RANGE, NOT_NULL), GOOD)
    assert verdict.status is VerdictStatus.PASSED and not verdict.status.vetoes
    assert [(result.column, result.success) for result in verdict.expectations] == [("v", True), ("v", True)]


@pytest.mark.parametrize("severity", ["warning", "info"])
def test_an_expectation_that_is_not_critical_is_recorded_and_the_epoch_published(severity: str) -> None:
    verdict = evaluate(suite({**IN_RANGE, "severity": severity}, NOT_NULL), BAD)
    assert verdict.status is VerdictStatus.WARNING and not verdict.status.vetoes
    assert [(result.severity, result.success) for result in verdict.expectations] == [
        (severity, False),
        ("critical", True),
    ]


def test_a_critical_failure_outweighs_a_warning() -> None:
    verdict = evaluate(suite({**IN_RANGE, "severity": "warning"}, IN_RANGE), BAD)
    assert verdict.status is VerdictStatus.FAILED


@pytest.mark.parametrize("severity", ["critical", "warning", "info"])
def test_an_expectation_that_raises_vetoes_whatever_its_severity(severity: str) -> None:
    """The library itself reports such a warning as a warning only."""
    verdict = evaluate(suite({**RAISES, "severity": severity}, IN_RANGE), GOOD)
    assert verdict.status is VerdictStatus.ERROR and verdict.status.vetoes
    assert verdict.expectations[0].exception is not None and not verdict.expectations[0].success
    assert verdict.expectations[1].success


def test_a_missing_column_vetoes() -> None:
    verdict = evaluate(suite({**NOT_NULL, "column": "gone", "severity": "warning"}), GOOD)
    assert verdict.status is VerdictStatus.ERROR
    assert '"gone"' in (verdict.expectations[0].exception or "")


@pytest.mark.deep
def test_an_epoch_that_publishes_no_row_is_skipped_and_loads_nothing() -> None:
    """On an empty frame null checks pass, which would look like a proof."""
    code = """
import sys, pyarrow as pa
from milepost.codec.records import to_json
from milepost.jobspec.job.spec import QualitySpec
from milepost.quality.gate import check_suite, evaluate
expectations = [{"type": "expect_column_values_to_not_be_null", "column": "v"}]
spec = QualitySpec.model_validate({"sink": "s", "expectations": expectations})
check_suite(spec)
print(to_json(evaluate(spec, pa.table({"v": pa.array([], pa.int64())}))))
assert "great_expectations" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'sink': 's', 'status': 'skipped', 'rows': 0, 'expectations': []}"


@pytest.mark.deep
def test_the_gate_is_silent_and_never_touches_the_network() -> None:
    """A first evaluation in a fresh process, with every connection refused."""
    code = """
import socket
def refuse(*args): raise AssertionError(f"connects to {args[1:]}")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
import pyarrow as pa
from milepost.jobspec.job.spec import QualitySpec
from milepost.quality.gate import evaluate
expectations = [{"type": "expect_column_values_to_be_between", "column": "v", "max_value": 2}]
spec = QualitySpec.model_validate({"sink": "s", "expectations": expectations})
print(evaluate(spec, pa.table({"v": [1, 2, 3]})).status.value)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("failed\n", "")


def test_integers_stay_exact_in_a_column_with_a_null() -> None:
    """int64 with a null becomes float64 in pandas, where 2^60 + 1 equals 2^60."""
    table = pa.table({"v": pa.array([None, 2**60 + 1], pa.int64())})
    for allowed, status in ((2**60, VerdictStatus.FAILED), (2**60 + 1, VerdictStatus.PASSED)):
        spec = suite({"type": "expect_column_values_to_be_in_set", "column": "v", "value_set": [allowed]})
        assert evaluate(spec, table).status is status


@pytest.mark.deep
@pytest.mark.parametrize(
    ("column", "expectation"),
    [
        (pa.array([True, None, False]), {"type": "expect_column_values_to_be_in_set", "value_set": [True, False]}),
        (pa.array(["a", None, "b"]), {"type": "expect_column_values_to_match_regex", "regex": "^[ab]$"}),
        (pa.array([1, None, 2], pa.int8()), {"type": "expect_column_values_to_be_of_type", "type_": "int8"}),
        (
            pa.array([0, None], pa.timestamp("us", "UTC")),
            {"type": "expect_column_values_to_be_between", "max_value": "1970-01-01T00:00:00+00:00"},
        ),
        (pa.array([None, None], pa.float64()), {"type": "expect_column_values_to_be_null"}),
    ],
)
def test_nulls_do_not_change_the_other_values(column: pa.Array, expectation: dict[str, object]) -> None:
    verdict = evaluate(suite({**expectation, "column": "c"}), pa.table({"c": column, "full": range(len(column))}))
    assert verdict.status is VerdictStatus.PASSED, verdict


def test_every_null_is_found() -> None:
    for column in (pa.array([1, None]), pa.array([1.0, None]), pa.array([1.0, float("nan")]), pa.array(["a", None])):
        verdict = evaluate(suite(NOT_NULL), pa.table({"v": column}))
        assert verdict.expectations[0].observed["unexpected_count"] == 1


def test_each_expectation_gets_its_own_answer_in_the_order_of_the_spec() -> None:
    """The library answers sorted by column; equal expectations of different severity must not be mixed up."""
    spec = suite(
        {"type": "expect_table_row_count_to_be_between", "min_value": 1},
        {"type": "expect_column_values_to_be_in_set", "column": "s", "value_set": ["a"], "severity": "info"},
        {**IN_RANGE, "severity": "warning"},
        NOT_NULL,
        IN_RANGE,
    )
    found = [(r.type, r.severity, r.success) for r in evaluate(spec, BAD).expectations]
    assert found == [
        ("expect_table_row_count_to_be_between", "critical", True),
        ("expect_column_values_to_be_in_set", "info", False),
        ("expect_column_values_to_be_between", "warning", False),
        ("expect_column_values_to_not_be_null", "critical", True),
        ("expect_column_values_to_be_between", "critical", False),
    ]


@pytest.mark.parametrize(
    ("expectation", "hint"),
    [
        (
            {**IN_RANGE, "type": "expect_column_values_to_be_betwen"},
            "expect_column_values_to_be_between",
        ),
        ({**IN_RANGE, "min_valu": 1}, ""),
        ({**IN_RANGE, "min_value": "low"}, ""),
        ({"type": "expect_column_values_to_not_be_null"}, ""),
        ({"type": "expect_column_values_to_be_between", "column": "v"}, ""),
    ],
)
def test_a_suite_that_cannot_be_built_is_a_bad_spec(expectation: dict[str, object], hint: str) -> None:
    """Refused before the trigger, naming what is wrong and the nearest known type."""
    with wording.raises(InvalidRequest) as refused:
        resolve_suite(suite(expectation))
    assert hint in refused.value.hint
    with pytest.raises(InvalidRequest):
        evaluate(suite(expectation), GOOD)


def test_lint_uses_the_same_list_of_expectations_as_the_library() -> None:
    """Fails when another version of the library has other expectations or arguments."""
    from great_expectations.expectations import registry

    found = {}
    for name in registry.list_registered_expectation_implementations():
        fields = registry.get_expectation_impl(name).__fields__
        own = fields.keys() - COMMON - SET_BY_THE_GATE
        assert fields.keys() >= COMMON | SET_BY_THE_GATE
        found[name] = {f"{argument}{'!' * fields[argument].required}" for argument in own}
    del found["unexpected_rows_expectation"]  # which a spec cannot name
    assert {name: set(arguments.split()) for name, arguments in ARGUMENTS.items()} == found


GIVEN: dict[str, object] = {
    "base_query": "a", "column": "v", "column_A": "v", "column_B": "w", "column_list": ["v", "w"], "double_sided": True,
    "comparison_data_source_name": "a", "comparison_query": "a", "json_schema": {}, "like_pattern": "a", "min_value": 1,
    "like_pattern_list": ["a"], "other_table_name": "a", "quantile_ranges": {"quantiles": [1], "value_ranges": [[0]]},
    "regex": "a", "regex_list": ["a"], "strftime_format": "%Y", "sum_total": 1, "threshold": 1, "type_": "a",
    "value": 1, "value_pairs_set": [[1, 2]], "value_set": [1],
}  # fmt: skip
REFUSED = object()
SAMPLES = (
    None, "zero", "", "a", "5", "0.5", "yes", "any", "iqr", "never", "neither", "pandas", "%Y-%m", "%Q", "2024-02-29",
    "2024-02-29T10:00:00", "10:00", 0, 1, -1, 2.5, 0.5, True, date(2024, 2, 29), [], ["a"], ["a", "b"], [["a", 1]],
    [["a"]],
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", ARGUMENTS)
def test_lint_accepts_the_values_that_the_library_accepts(name: str) -> None:
    """Except: of numbers of rows or letters `lint` takes no fractions, which the library cuts off, and no times. And
    the library finds only in an epoch that a range is empty.

    What the library makes a mapping of, such as an empty list, is compared with nothing: a gate has no parameters.
    """
    from great_expectations.expectations import registry

    kind = registry.get_expectation_impl(name)
    arguments = [argument.removesuffix("!") for argument in ARGUMENTS[name].split()]
    given = {argument: value for argument, value in GIVEN.items() if argument in arguments}
    different = []
    for argument in arguments:
        for value in SAMPLES:
            values = {**given, argument: value}
            try:
                taken = getattr(kind(**values), argument)
            except (ValueError, TypeError):
                taken = REFUSED
            if isinstance(taken, dict):
                continue
            problem = expectation_problem(name, values)
            if (taken is REFUSED) != (problem is not None):
                different.append((argument, repr(value), problem and problem[1]))
    below = {one for one in different if one[2] == f"{one[1]} is less than `min_value`, which is 1"}
    whole = {one for one in different if one[2] == f"expected a whole number, got {one[1]}"}
    assert set(different) == below | whole
    assert {value for _, value, _ in whole} <= {"0.5", "2.5", "'0.5'", "'2024-02-29T10:00:00'"}


def test_an_empty_suite_is_a_bad_spec() -> None:
    """It would pass everything."""
    empty = QualitySpec.model_construct(sink="carriers", expectations=())
    for check in (check_suite, resolve_suite, lambda spec: evaluate(spec, GOOD)):
        with wording.raises(InvalidRequest):
            check(empty)


@pytest.mark.parametrize("name", ["result_format", "catch_exceptions", "meta"])
def test_an_argument_that_the_gate_sets_cannot_be_set_in_the_spec(name: str) -> None:
    """`result_format: COMPLETE` would put rows into the verdict, `catch_exceptions: false` would lose one."""
    with wording.raises(InvalidRequest) as refused:
        check_suite(suite({**IN_RANGE, name: "COMPLETE"}))
    assert name in str(refused.value)


def test_the_verdict_of_an_epoch_is_that_of_its_most_severe_sink() -> None:
    specs = [suite(IN_RANGE, sink="a"), suite({**IN_RANGE, "severity": "warning"}, sink="b"), suite(IN_RANGE, sink="c")]
    tables = {"a": GOOD, "b": BAD, "c": GOOD.slice(0, 0)}
    verdict = GateVerdict.of(tuple(evaluate(spec, tables[spec.sink]) for spec in specs))
    assert [inner.status.value for inner in verdict.verdicts] == ["passed", "warning", "skipped"]
    assert verdict.status is VerdictStatus.WARNING and not verdict.vetoes
    verdict.raise_if_vetoed("orders", 7)
    assert GateVerdict.of((*verdict.verdicts[:2], evaluate(specs[2], BAD))).vetoes
    assert GateVerdict.of(()).status is VerdictStatus.SKIPPED


def test_a_veto_names_the_expectations_that_are_not_met_and_states_that_nothing_is_published() -> None:
    verdict = GateVerdict.of((evaluate(suite(IN_RANGE, {**NOT_NULL, "column": "gone"}), BAD),))
    with wording.raises(QualityGateFailed) as refused:
        verdict.raise_if_vetoed("orders", 42)
    message = refused.value.message
    assert "checkpoint 42" in message
    assert "sink carriers: expect_column_values_to_be_between(v) refused 1 of 3 rows (critical)" in message
    assert "expect_column_values_to_not_be_null(gone) raised" in message


def test_the_text_of_a_result_has_no_data_value_that_an_exception_has() -> None:
    raised = ExpectationResult("t", "v", "critical", False, {}, "TypeError: Could not convert string 'IBAN 12'")
    assert raised.describe() == "t(v) raised TypeError"
    assert replace(raised, exception="Could not convert 'IBAN: 12'").describe() == "t(v) raised an exception"


def test_a_verdict_survives_being_stored() -> None:
    verdict = GateVerdict.of((evaluate(suite(IN_RANGE, RAISES), BAD), evaluate(suite(IN_RANGE, sink="other"), GOOD)))
    assert from_json(GateVerdict, json.loads(json.dumps(to_json(verdict))), "gate verdict") == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"status": "passed"},
        {"status": "fine"},
        {"verdicts": None},
        {"verdicts": [{}]},
        {"more": 1},
    ],
)
def test_a_stored_verdict_that_is_not_well_formed_is_corrupt(change: dict[str, object]) -> None:
    """Also one that says "passed" over a veto."""
    document = to_json(GateVerdict.of((Verdict("s", VerdictStatus.FAILED, 1, ()),)))
    with pytest.raises(StateCorrupt):
        from_json(GateVerdict, {**document, **change}, "gate verdict")


def test_only_the_gate_reports_why_the_library_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Loading it while Spark starts saves time; it does not move, hide or repeat an error."""
    monkeypatch.delitem(sys.modules, "great_expectations.expectations", raising=False)
    empty = ModuleType("great_expectations")
    empty.__spec__ = ModuleSpec("great_expectations", None)
    monkeypatch.setitem(sys.modules, "great_expectations", empty)
    thread = start_loading([suite(IN_RANGE)])
    assert thread is not None
    thread.join()
    assert capfd.readouterr() == ("", "")
    with wording.raises(EnvironmentUnusable):
        evaluate(suite(IN_RANGE), GOOD)


def test_the_library_is_imported_while_the_data_plane_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for an epoch without expectations."""
    began = threading.Event()
    monkeypatch.delitem(sys.modules, "great_expectations.expectations", raising=False)
    monkeypatch.setattr("milepost.quality.gx._import", began.set)
    monkeypatch.setattr("milepost.jobmaster.run.trigger.resolve_suite", lambda spec: None)

    def look(plan: EpochPlan) -> None:
        assert began.wait(240)
        raise StoreUnavailable("this is not about the rest")

    expectations = "quality:\n  - {sink: table, expectations: [{type: expect_column_to_exist, column: k}]}\n"
    job = SparklessJob.create(tmp_path, {"checkpointing:": expectations + "checkpointing:"})
    job.land("a.csv")
    with wording.raises(StoreUnavailable):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=look))
    began.clear()
    assert start_loading(()) is None and not began.is_set()
