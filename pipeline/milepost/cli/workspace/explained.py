"""Print an explained graph: edges, bounds of states, and late rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.cli.terminal.output import Output
from milepost.cli.terminal.tables import new_file
from milepost.codec import to_json
from milepost.views import show_bytes, show_count

if TYPE_CHECKING:
    from milepost.jobmaster import StateSize

_FIGURES = ("rows", "size", "rows a day")


def add_sizes(report: dict[str, Any], sizes: Mapping[str, StateSize]) -> None:
    """Add the size at the head to each state of a `lint_report`; null if unknown."""
    for state in _states(report):
        size = sizes.get(state["name"])
        state["size"] = None if size is None else to_json(size)


def write_picture(report: Mapping[str, Any], file: Path) -> None:
    """Draw the graph to a new file. Raises: as `new_file`."""
    from milepost.jobspec.picture import graph_picture

    picture = graph_picture(report).encode()
    with new_file(file) as stream:
        stream.write(picture)


def _show_statements(report: Mapping[str, Any], output: Output) -> None:
    """Print each SQL statement with its stateful steps, mode, key and event time."""
    rows, notes = [], []
    where = "file" if len({one["file"] for one in report["statements"]}) > 1 else "line"
    edits = ["edit"] if any(one["edit"] for one in report["statements"]) else []  # without a head there is none
    for one in report["statements"]:
        kinds = [step["kind"] for step in one["steps"] if step["kind"] != "sql"]
        edit = [one["edit"] or ""] if edits else []
        rows.append([one["name"], one[where] or "", ", ".join(kinds) or "sql", one["mode"], *edit])
        remarks = [] if one["event_time"] is None else [f"event time {one['event_time']}"]
        if one["incomplete_before"] is not None:
            remarks.append(f"does not equal its query before checkpoint {one['incomplete_before']}")
        notes.append("; ".join([*remarks, *(f"line {w['line']}: {w['message']}" for w in one["warnings"])]))
    optional = ("steps", where) if edits else (where,)
    output.table(["statement", where, "steps", "rows", *edits], rows, optional=optional, notes=notes)


def show_graph(report: Mapping[str, Any], output: Output) -> None:
    """Print the nodes with their outputs, then states and late rows, if there are any.

    Of a job in SQL, statements are printed instead of the nodes that they are compiled into.
    """
    if report["statements"]:
        _show_statements(report, output)
    else:
        _show_nodes(report["nodes"], output)
    states = _shown_states(report)
    if states:
        output.text()
        figures = [_figures(state["size"]) for state in states]
        shown = [name for name in _FIGURES if any(name in one for one in figures)]
        rows = [
            [state["name"], *(of_state.get(name, "") for name in shown), state["bound"]]
            for state, of_state in zip(states, figures, strict=True)
        ]
        columns = ["state", *shown, "bound"]
        output.table(columns, rows, notes=[state["holds"] for state in states], figures=shown)
    late = [late for node in report["nodes"] for late in node["late"]]
    if late:
        output.text()
        rows = [[one["output"], ", ".join(one["sinks"]) or "counted, not kept"] for one in late]
        output.table(["late rows", "sink"], rows, notes=[one["rule"] for one in late])
    _show_row_rules(report["row_rules"], output)


def _show_row_rules(rules: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print what happens to a row that a rule refuses."""
    if not rules:
        return
    output.text()
    rows = [
        [one["sink"], one["rule"], f"goes to {', '.join(one['sinks'])}" if one["sinks"] else "counted, not kept"]
        for one in rules
    ]
    notes = ["" if one["mostly"] is None else f"not met below {one['mostly']} of the rows" for one in rules]
    output.table(["sink", "row rule", "a refused row"], rows, notes=notes)


def _show_nodes(nodes: Sequence[Mapping[str, Any]], output: Output) -> None:
    rows = [[node["uid"], node["kind"], node["level"], ", ".join(node["inputs"]), _output(node)] for node in nodes]
    notes = ["; ".join(_remarks(node)) for node in nodes]
    output.table(["uid", "kind", "level", "inputs", "output"], rows, optional=("level",), notes=notes)


def _output(node: Mapping[str, Any]) -> str:
    """Return the changelog mode of a node's rows as text; for a static source, that it is not a stream."""
    return "looked up" if node["kind"] == "static" else str(node["output"])


def _remarks(node: Mapping[str, Any]) -> Iterator[str]:
    if node["key"]:
        yield f"key {', '.join(node['key'])}"
    if node["event_time"] is not None:
        yield f"event time {node['event_time']}"
        if node["holds_back"] not in (None, "0s"):
            yield f"holds back {node['holds_back']}"


def _figures(size: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the known figures of a state's size by column name."""
    if size is None:
        return {}
    figures = {"rows": show_count(size["rows"]), "size": show_bytes(size["bytes"])}
    return figures if size["rows_per_day"] is None else figures | {"rows a day": f"{size['rows_per_day']:+,}"}


def _shown_states(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the states statement by statement, in the words of the query, and then those of the spec's operators."""
    own = {state["name"]: state for one in report["statements"] for state in one["state"]}
    of_nodes = {state["name"]: state for state in _states(report)}
    return [of_nodes[name] | own.get(name, {}) for name in [*own, *(name for name in of_nodes if name not in own)]]


def _states(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    return (state for node in report["nodes"] for state in node["state"])
