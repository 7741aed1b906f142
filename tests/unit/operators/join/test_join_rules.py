"""Output, checks and signatures of joins."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from milepost.errors import InvalidRequest
from milepost.jobspec.graph.compatibility import NEW_UID, compare_signatures, state_signatures
from milepost.jobspec.graph.in_flight import input_signatures
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.explain import explained_node
from milepost.operators.join.spec import JoinOperator
from milepost_testkit import wording
from milepost_testkit.specs.graphs import build_graph

ORDERS = {"id": "int32", "who": "string", "t": "timestamp[us, UTC]", "tags": "list<string>"}
CLICKS = {"order": "int64", "who": "string", "at": "timestamp[ms, UTC]", "price": "float64"}
JOIN = {"uid": "pairs", "kind": "join", "inputs": ["orders", "clicks"], "key": ["who", {"id": "order"}],
        "within": ["-1h", "2h"]}  # fmt: skip


def spec(*operators: dict[str, Any], sinks: tuple[str, ...] = (), **sources: dict[str, Any]) -> JobSpec:
    columns = {"orders": (ORDERS, "t"), "clicks": (CLICKS, "at")}
    sources = {
        name: {"format": "json", "path": f"{name}/*", "schema": schema, "event_time": time} | sources.get(name, {})
        for name, (schema, time) in columns.items()
    }
    published = [
        {"name": f"s{at}", "input": name, "format": "parquet", "path": f"out/{at}", "mode": "append"}
        for at, name in enumerate(sinks)
    ]
    value = {"name": "job", "storage": "lake", "sources": sources, "operators": list(operators), "sinks": published}
    return JobSpec.model_validate(value)


def join(**changed: Any) -> dict[str, Any]:
    return JOIN | changed


def test_a_match_has_the_left_columns_then_the_right_ones_without_their_key() -> None:
    node = build_graph(spec(join(columns={"clicked": "right.at"}))).nodes["pairs"]
    assert list(node.columns) == ["id", "who", "t", "tags", "clicked", "price"]
    assert (node.event_time, node.output_kind, node.key, node.level) == ("t", "append", (), 1)
    assert node.sources == ("orders", "clicks")
    assert str(node.columns["clicked"]) == "timestamp[ms, UTC]"


def test_an_anti_join_that_would_never_emit_a_row_is_refused() -> None:
    """An anti join emits a row once the watermark is the upper bound after it. Other joins have no such limit."""
    for within in (["-36500d", "36500d"], ["0s", "3650d"]):
        with wording.raises(InvalidRequest):
            build_graph(spec(join(how="anti", within=within, key=["who"])))
        build_graph(spec(join(how="semi", within=within, key=["who"])))
    build_graph(spec(join(how="anti", within=["-36500d", "30d"], key=["who"])))


def test_unmatched_rows_are_held_back_as_long_as_they_wait() -> None:
    """A left row waits up to hi, a right one up to -lo. semi and anti emit only the left columns."""
    for how, within, holdback_h in (
        ("inner", ["-3h", "2h"], 2),
        ("left", ["-3h", "2h"], 2),
        ("right", ["-3h", "2h"], 3),
        ("right", ["1h", "2h"], 2),
        ("full", ["-3h", "2h"], 3),
        ("right", ["-2h", "-1h"], 2),
        ("semi", ["-3h", "2h"], 2),
        ("anti", ["-3h", "-1h"], 0),
    ):
        node = build_graph(spec(join(how=how, within=within, key=["who"]))).nodes["pairs"]
        assert node.holdback_us == holdback_h * 3_600_000_000, how
        right = [] if how in ("semi", "anti") else ["order", "at", "price"]
        assert list(node.columns) == ["id", "who", "t", "tags", *right]


def test_late_rows_of_each_input_are_an_output_of_their_own() -> None:
    graph = build_graph(spec(JOIN, sinks=("pairs", "pairs.late.orders", "pairs.late.clicks")))
    outputs = {name: (sink.output, sink.part, list(sink.columns)) for name, sink in graph.sink_inputs.items()}
    assert outputs["s1"] == ("pairs.late.orders", ".late.orders", list(ORDERS))
    assert outputs["s2"] == ("pairs.late.clicks", ".late.clicks", list(CLICKS))
    assert graph.nodes["pairs"].late_sinks == ("s1", "s2")
    renamed = {"b": "right.id", "c": "right.t", "d": "right.tags"}
    itself = join(inputs=["orders", "orders"], key=["who"], columns=renamed)
    assert build_graph(spec(itself, sinks=("pairs.late.orders.2",))).sink_inputs["s0"].part == ".late.orders.2"


def test_a_join_is_one_level_above_the_higher_of_its_inputs() -> None:
    once = {"uid": "once", "kind": "deduplicate", "inputs": ["orders"], "key": ["id"]}
    kept = {"uid": "kept", "kind": "sql", "inputs": ["once"], "sql": "SELECT * FROM once"}
    graph = build_graph(spec(join(inputs=["kept", "clicks"]), kept, once))
    assert [graph.nodes[uid].level for uid in ("kept", "pairs")] == [1, 2]


@pytest.mark.parametrize(
    ("changed", "sources", "message"),
    [
        ({"columns": {}, "key": ["who"]}, {"clicks": {"schema": CLICKS | {"ID": "int8"}}},
         "ID would be both orders.id and clicks.ID; rename the right column: columns: {right_ID: right.ID}"),
        ({"columns": {"a": "right.nothing"}}, {}, "clicks has no column nothing outside the key"),
        ({"columns": {"a": "right.order"}}, {}, "clicks has no column order outside the key"),
        ({"key": [{"id": "nothing"}]}, {}, "clicks has no column nothing"),
        ({"key": [{"tags": "who"}]}, {}, "tags is list<string>; a key cannot contain lists or structs"),
        ({"key": [{"id": "price"}]}, {}, "id is int32, but price is float64"),
        ({"key": [{"t": "who"}]}, {}, "their values cannot be compared; CAST one of them"),
        ({}, {"clicks": {"event_time": None}}, "the right input of a join needs an event time, but the rows of clicks"),
        ({"inputs": ["orders", "totals"], "key": ["who"]}, {}, "join over updates (the rows of totals)"),
        ({"how": "right"}, {}, "`how: right` stores clicks.order (int64) in id (int32), which cannot hold it"),
        ({"how": "right", "key": ["who"], "inputs": ["clicks", "orders"]}, {},
         "stores orders.t (timestamp[us, UTC]) in at (timestamp[ms, UTC]), which cannot hold it"),
        ({"how": "right", "key": ["who"], "inputs": ["hourly", "clicks"], "columns": {}}, {},
         "`how: right` cannot combine the event time of a window"),
        ({"how": "full", "key": ["who"], "inputs": ["hourly", "clicks"], "columns": {}}, {},
         "`how: full` cannot combine the event time of a window"),
        ({"how": "semi", "columns": {"cost": "right.price"}}, {}, "`how: semi` emits only the columns of the left"),
    ],
)  # fmt: skip
def test_what_cannot_be_joined_is_refused(changed: dict[str, Any], sources: dict[str, Any], message: str) -> None:
    totals = {"uid": "totals", "kind": "aggregate", "inputs": ["clicks"], "key": ["who"]}
    totals |= {"aggregates": {"n": "count(*)"}}
    hourly = totals | {"uid": "hourly", "kind": "window", "window": {"tumbling": "1h"}}
    with pytest.raises(InvalidRequest) as caught:
        build_graph(spec(totals, hourly, join(**changed), **sources))
    assert message in caught.value.message


@pytest.mark.parametrize(
    "changed",
    [
        {"within": ["1h", "-1h"]},
        {"within": ["1h"]},
        {"within": [1, 2]},
        {"inputs": ["orders"]},
        {"key": [{"a": "b", "c": "d"}]},
        {"key": ["who", {"who": "order"}]},
        {"columns": {"a": "left.id"}},
        {"how": "outer"},
    ],
)
def test_a_join_with_invalid_options_is_refused(changed: dict[str, Any]) -> None:
    with wording.raises(ValidationError):
        spec(join(**changed))


def test_cycles_through_either_input_are_found() -> None:
    second = {"uid": "second", "kind": "deduplicate", "inputs": ["pairs"], "key": ["who"]}
    with wording.raises(InvalidRequest):
        build_graph(spec(join(inputs=["orders", "second"]), second))


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"within": ["-1h", "1h"]}, True),
        ({"key": ["who"], "columns": {}}, True),
        ({"inputs": ["clicks", "orders"], "key": ["who", {"order": "id"}]}, True),
        ({"columns": {"cost": "right.price"}}, False),
        ({"how": "left"}, True),
    ],
)
def test_state_of_a_join_depends_on_its_key_its_interval_and_its_inputs(changed: dict[str, Any], refused: bool) -> None:
    """Rows that were removed cannot come back. New names of output columns do not affect state."""
    before, after = (spec(operator) for operator in (JOIN, join(**changed)))
    signatures = [state_signatures(job_spec, build_graph(job_spec)) for job_spec in (before, after)]
    verdicts = {row["uid"]: row["verdict"] for row in compare_signatures(*signatures)}
    assert (verdicts["pairs"] != "compatible") == refused
    digests = [input_signatures(job_spec, build_graph(job_spec))["pairs"] for job_spec in (before, after)]
    assert (digests[0] != digests[1]) == ("key" in changed or "inputs" in changed)


NOW = {"uid": "now", "kind": "join", "inputs": ["orders", "clicks"], "key": ["who"]}
LATEST = {"uid": "newest", "kind": "latest", "inputs": ["orders"], "key": ["id"], "sequence_by": ["t"]}


def test_without_a_time_bound_rows_are_append_only_if_none_is_ever_retracted() -> None:
    for how, over_updates, mode in (
        ("inner", False, "append"), ("semi", False, "append"), ("left", False, "retract"), ("anti", False, "retract"),
        ("right", False, "retract"), ("full", False, "retract"),
        ("inner", True, "retract"), ("semi", True, "retract"),
    ):  # fmt: skip
        inputs = ["newest", "clicks"] if over_updates else ["orders", "clicks"]
        job = spec(LATEST, NOW | {"how": how, "inputs": inputs})
        graph = build_graph(job)
        node = graph.nodes["now"]
        assert (node.output_kind, node.event_time, node.key, node.holdback_us) == (mode, None, (), 0), how
        assert list(node.columns) == [*ORDERS, *([] if how in ("semi", "anti") else ["order", "at", "price"])]
        state = {one["table"]: one["grows_with"] for one in explained_node(job, graph, node)["state"]}
        grows = "distinct id of newest" if over_updates else "rows of orders"
        assert state == {"left": grows, "right": "rows of clicks"} and not explained_node(job, graph, node)["late"]


def test_a_join_without_a_time_bound_needs_no_event_time() -> None:
    assert build_graph(spec(NOW, sinks=("now",), clicks={"event_time": None})).sink_inputs["s0"].mode == "append"


def test_a_condition_is_read_with_either_side_first() -> None:
    texts = ["right.price<amount", " left.at >= right.t ", "who <=> right.my name"]
    condition = JoinOperator.model_validate(NOW | {"condition": texts}).condition
    assert [one.text for one in condition] == ["amount > right.price", "at >= right.t", "who <=> right.my name"]
    again = JoinOperator.model_validate(JoinOperator.model_validate(NOW | {"condition": texts}).model_dump(mode="json"))
    assert again.condition == condition


@pytest.mark.parametrize("text", ["a < b", "right.a < right.b", "a <> right.", "a == right.b", "a != right.b", "a", 7])
def test_what_is_no_comparison_of_both_sides_is_refused(text: object) -> None:
    with wording.raises(ValidationError):
        JoinOperator.model_validate(NOW | {"condition": [text]})


@pytest.mark.parametrize(
    "changed",
    [
        {"how": "right", "key": [{"id": "order"}], "columns": {"w": "right.who"}},
        {"how": "full", "key": [{"id": "order"}], "columns": {"w": "right.who"}},
        {"within": ["0s", "1h"], "condition": ["who = right.who"]},
        {"within": ["0s", "1h"], "key": []},
        {"condition": ["tags = right.who"]},
        {"condition": ["absent = right.who"]},
        {"condition": ["who = right.absent"]},
        {"condition": ["who < right.price"]},
        {"key": [{"tags": "who"}]},
        {"key": [{"id": "who"}]},
        {"key": []},
        {"how": "anti", "columns": {"x": "right.price"}},
    ],
)
def test_a_join_without_a_time_bound_that_does_not_fit_is_refused(changed: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec(NOW | changed))


def test_a_join_of_everything_with_everything_has_the_columns_of_both() -> None:
    node = build_graph(spec(NOW | {"key": [], "columns": {"their": "right.who"}})).nodes["now"]
    assert list(node.columns) == [*ORDERS, "order", "their", "at", "price"]


@pytest.mark.parametrize("changed", [{"how": "left"}, {"condition": ["who <> right.who"]}, {"within": ["0s", "1h"]}])
def test_its_state_depends_on_what_it_stores(changed: dict[str, Any]) -> None:
    now = NOW | {"key": [{"id": "order"}], "columns": {"w": "right.who"}}
    before, after = spec(now), spec(now | changed)
    old, new = (state_signatures(job, build_graph(job)) for job in (before, after))
    assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["now"] == NEW_UID
    renamed = spec(now | {"columns": {"v": "right.who"}})
    assert state_signatures(renamed, build_graph(renamed))["operators"] == old["operators"]


EXPIRING = {"orders": {"schema": ORDERS | {"expires": "timestamp[ms]", "n": "int64"}}}
OWN = {"within": ["-5m", "expires - t"], "key": ["who"]}


def test_an_upper_bound_may_be_a_column_of_the_left_row_and_the_output_has_no_event_time() -> None:
    job = spec(join(**OWN), **EXPIRING)
    node = build_graph(job).nodes["pairs"]
    assert (node.event_time, node.output_kind, node.holdback_us, node.shift_us) == (None, "append", 0, 0)
    states = explained_node(job, build_graph(job), node)["state"]
    assert [one["until"] for one in states] == ["the watermark passes expires", "the watermark passes event time + 5m"]
    operator = JoinOperator.model_validate(join(**OWN))
    assert operator.model_dump(mode="json")["within"] == ["-5m", "expires - t"]
    assert JoinOperator.model_validate(operator.model_dump(mode="json")) == operator


@pytest.mark.parametrize(
    "within",
    [["-5m", "expired - t"], ["-5m", "expires - at"], ["-5m", "n - t"], ["-5m", "tags - t"]],
)
def test_an_upper_bound_that_does_not_fit_the_left_input_is_refused(within: list[str]) -> None:
    with wording.raises(InvalidRequest):
        build_graph(spec(join(**OWN | {"within": within}), **EXPIRING))


def test_an_upper_bound_of_a_row_of_a_window_is_refused() -> None:
    hourly = {"uid": "hourly", "kind": "window", "inputs": ["orders"], "key": ["who"], "window": {"tumbling": "1h"},
              "aggregates": {"last": "max(expires)"}}  # fmt: skip
    own = join(inputs=["hourly", "clicks"], key=["who"], within=["0s", "last - window_end"])
    with wording.raises(InvalidRequest):
        build_graph(spec(hourly, own, **EXPIRING))


def test_a_lower_bound_of_a_row_needs_a_constant_that_bounds_the_state() -> None:
    with pytest.raises(ValidationError, match="the lower bound expires - t is only a column"):
        JoinOperator.model_validate(join(within=["expires - t", "1h"]))
    for within in ([["1h", "2h"], "3h"], [["expires - t", "0s"], "3h"], [["0s"], "3h"], [["2h", "expires - t"], "1h"]):
        with pytest.raises(ValidationError, match=r"expected a constant and a column|the first bound is above"):
            JoinOperator.model_validate(join(within=within))


def test_a_constant_next_to_a_bound_of_a_row_bounds_state_and_event_time() -> None:
    within = [["-5m", "expires - t"], ["2h", "expires - t"]]
    job = spec(join(key=["who"], within=within, how="left"), **EXPIRING)
    node = build_graph(job).nodes["pairs"]
    assert (node.event_time, node.holdback_us) == ("t", 7_200_000_000)
    states = explained_node(job, build_graph(job), node)["state"]
    assert [one["until"] for one in states] == [
        "the watermark passes event time + 2h or expires", "the watermark passes event time + 5m",
    ]  # fmt: skip
    assert JoinOperator.model_validate(job.operator("pairs").model_dump(mode="json")) == job.operator("pairs")
    other = spec(join(key=["who"], within=["-5m", within[1]], how="left"), **EXPIRING)
    old, new = (state_signatures(one, build_graph(one)) for one in (job, other))
    assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["pairs"] == NEW_UID


def test_state_of_a_join_depends_on_its_row_bound() -> None:
    columns = {"schema": ORDERS | {"expires": "timestamp[ms]", "ends": "timestamp[us]"}}
    bounds = (["-5m", "1h"], ["-5m", "expires - t"], ["-5m", "ends - t"])
    constant, own, other = (spec(join(key=["who"], within=within), orders=columns) for within in bounds)
    for one, two in ((constant, own), (own, other)):
        old, new = (state_signatures(job, build_graph(job)) for job in (one, two))
        assert {row["name"]: row["verdict"] for row in compare_signatures(old, new)}["pairs"] == NEW_UID
