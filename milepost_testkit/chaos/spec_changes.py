"""Random spec changes between epochs: compatible ones, and ones that must be refused."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from milepost.errors import InvalidRequest
from milepost.operators.kinds import STATEFUL_KINDS
from milepost_testkit.chaos.chaos_job import ChaosJob
from milepost_testkit.chaos.places import formats_of
from milepost_testkit.chaos.repeated_columns import AGAIN
from milepost_testkit.law.examples import cuts_epochs
from milepost_testkit.models.data.kinds.lookups import STATIC

Document = dict[str, Any]


def change_spec(job: ChaosJob, random: Random) -> str | None:
    """Make a change that is compatible with the state. Returns its description; None if nothing changed."""
    what = random.choice(_SAME_GRAPH if job.on_spark or cuts_epochs(job.document) else list(_CHANGES))
    before = copy.deepcopy(job.document)
    if not _CHANGES[what](job, random):
        return None
    try:
        job.checked()
    except InvalidRequest:
        job.document = before
        job.write()
        return None
    return what


def _buffer(job: ChaosJob, random: Random) -> bool:
    job.document["spark"]["buffer_size"] = random.choice(("1KB", "64KB", "1MB"))
    return True


def _retained(job: ChaosJob, random: Random) -> bool:
    job.document["checkpointing"]["retained"] = {"last": random.choice((1, 3, 50))}
    return True


def _renamed(job: ChaosJob, random: Random) -> bool:
    """Rename a stateful operator, once."""
    chances = [one for one in job.document["operators"] if _has_state(one) and "renamed_from" not in one]
    chances = [one for one in chances if one["uid"] in _known(job)]
    if not chances:
        return False
    chosen = random.choice(chances)
    old, new = chosen["uid"], f"{chosen['uid']}_now"
    for one in job.document["operators"]:
        one["inputs"] = [new if name == old else name for name in one["inputs"]]
        if "sql" in one:
            one["sql"] = one["sql"].replace(f"FROM {old} ", f"FROM {new} ").replace(f"FROM {old}\n", f"FROM {new}\n")
            if one["sql"].endswith(f"FROM {old}"):
                one["sql"] = one["sql"].removesuffix(old) + new
    for sink in job.document["sinks"]:
        sink["input"] = ".".join(new if part == old else part for part in sink["input"].split("."))
    chosen |= {"uid": new, "renamed_from": old}
    job.model.renamed[old] = new
    return True


def _added(job: ChaosJob, random: Random) -> bool:
    """Add an operator over a source, with a table."""
    number = sum(one["uid"].startswith("added") for one in job.document["operators"])
    uid = f"added{number}"
    source = random.choice([name for name in job.document["sources"] if name != STATIC])
    kinds: tuple[Document, ...] = (
        {"kind": "aggregate", "key": ["k"], "aggregates": {"n": "count(*)", "total": "sum(i)", "low": "min(x)"}},
        {"kind": "window", "key": ["k"], "window": {"tumbling": "30m"}, "aggregates": {"n": "count(*)"}},
        {"kind": "deduplicate", "key": ["i"]},
        {"kind": "top", "key": ["k"], "order_by": [{"x": "desc"}], "n": 2, "rank": "place"},
        {"kind": "latest", "key": ["k"], "sequence_by": ["t"]},
    )
    job.document["operators"].append({"uid": uid, "inputs": [source]} | random.choice(kinds))
    mode = "append" if job.checked().nodes[uid].output_kind == "append" else "upsert"
    _add_sink(job, {"name": uid, "input": uid, "mode": mode}, random)
    return True


def _column_added(job: ChaosJob, random: Random) -> bool:
    """Repeat a column of an unread aggregate under another name. Its state already has the value."""
    read = {name for one in job.document["operators"] for name in one["inputs"]}
    chances = [one for one in job.document["operators"] if one["kind"] == "aggregate" and one["uid"] not in read]
    known = _known(job)
    chances = [
        one for one in chances if one["uid"] in known and not any(name.startswith(AGAIN) for name in one["aggregates"])
    ]
    if not chances:
        return False
    chosen = random.choice(chances)
    name, call = random.choice(list(chosen["aggregates"].items()))
    chosen["aggregates"] = chosen["aggregates"] | {f"{AGAIN}{name}": call}
    return True


def _another_table(job: ChaosJob, random: Random) -> bool:
    """Add another table of an output that has one."""
    if not job.document["sinks"]:
        return False
    chosen = random.choice(job.document["sinks"])
    name = f"{chosen['name']}_{sum(one['input'] == chosen['input'] for one in job.document['sinks'])}"
    _add_sink(job, {"name": name, "input": chosen["input"], "mode": chosen["mode"]}, random)
    return True


def _add_sink(job: ChaosJob, sink: Document, random: Random) -> None:
    key = next((one.get("key", []) for one in job.document["operators"] if one["uid"] == sink["input"]), [])
    job.document["sinks"].append(job.places.put(sink, random.choice(formats_of(sink["mode"], key)), random))


def _removed(job: ChaosJob, random: Random) -> bool:
    """Remove an unread operator with its tables, and drop its state."""
    read = {name for one in job.document["operators"] for name in one["inputs"]}
    chances = [one for one in job.document["operators"] if one["uid"] not in read and _has_state(one)]
    if len(job.document["operators"]) < 2 or not chances:
        return False
    _remove(job, random.choice(chances)["uid"])
    sinks = {one["name"] for one in job.document["sinks"]}
    job.document["quality"] = [one for one in job.document.get("quality", []) if one["sink"] in sinks]
    job.leaves = True
    return bool(job.document["sinks"])


def _remove(job: ChaosJob, uid: str) -> None:
    """Remove an operator with its tables."""
    job.document["operators"] = [one for one in job.document["operators"] if one["uid"] != uid]
    job.document["sinks"] = [one for one in job.document["sinks"] if one["input"].split(".")[0] != uid]


def _known(job: ChaosJob) -> set[str]:
    """Return the operators that have state in the job's head."""
    tries = job.model.tries(job.loaded)
    return set(tries[-1].uids) if tries else set()


def _has_state(operator: Document) -> bool:
    return operator["kind"] in STATEFUL_KINDS


_CHANGES: dict[str, Callable[[ChaosJob, Random], bool]] = {
    "buffers of another size": _buffer,
    "another number of checkpoints is retained": _retained,
    "operator renamed": _renamed,
    "operator added": _added,
    "operator removed": _removed,
    "table added": _another_table,
    "aggregate added": _column_added,
}
_SAME_GRAPH = ("buffers of another size", "another number of checkpoints is retained")
"""Changes after which a job's tries can be made once more by the spec that it has, and rows in flight fit it."""


@contextmanager
def refused_change(job: ChaosJob, random: Random) -> Iterator[str | None]:
    """Use a spec that does not fit the job's state during the block. Yields None if there is none."""
    before = copy.deepcopy(job.document)
    known = _known(job)
    try:
        kinds = list(_REFUSED)
        random.shuffle(kinds)
        yield next((what for what in kinds if _REFUSED[what](job, known) and _is_valid(job)), None)
    finally:
        job.document = before
        job.write()


def _is_valid(job: ChaosJob) -> bool:
    try:
        job.checked()
    except InvalidRequest:
        return False
    return True


def _key_groups(job: ChaosJob, known: set[str]) -> bool:
    job.document["checkpointing"]["max_parallelism"] = 16
    return True


def _another_key(job: ChaosJob, known: set[str]) -> bool:
    for one in job.document["operators"]:
        if one["uid"] in known and one["kind"] in ("deduplicate", "aggregate") and one["inputs"][0] in ("a", "b"):
            one["key"] = ["b"]
            return True
    return False


def _state_gone(job: ChaosJob, known: set[str]) -> bool:
    read = {name for one in job.document["operators"] for name in one["inputs"]}
    for one in job.document["operators"]:
        if one["uid"] in known and one["uid"] not in read and _has_state(one) and not job.leaves:
            _remove(job, one["uid"])
            job.document.pop("quality", None)
            return bool(job.document["sinks"])
    return False


_REFUSED: dict[str, Callable[[ChaosJob, set[str]], bool]] = {
    "another number of key groups": _key_groups,
    "another key": _another_key,
    "an operator with state is gone": _state_gone,
}
