"""The process that runs a dlt resource for one landing: `python -m milepost.sources.landed.dlt_process FOLDER`.

dlt keeps settings, secrets and open pipelines per process, so each landing has a process of its own. It writes only
below FOLDER, where it finds `request.json` and leaves `outcome.json` and Parquet files. Nothing is loaded anywhere.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from milepost.errors import CheckpointError
from milepost.operators.process import UserCodeFailed, UserFunction, read_function

STATE_BYTES = 1_000_000
"""Maximum size of a position."""

_PIPELINE = "landing"

_MIN_SECRET_CHARACTERS = 4
"""Shorter values occur in any text by chance."""


_SECRETS: list[tuple[str, str]] = []
"""Name and value of each secret that this process has read."""


class Refused(Exception):
    """The resource cannot be landed until it is corrected. `args[0]` says why."""


def main(folder: Path) -> None:
    """Run the resource of a request, and write the outcome."""
    request = json.loads((folder / "request.json").read_text())
    outcome: dict[str, Any]
    try:
        code = read_function(request["source"], request["resource"], Path(request["module_dir"]), owner="it")
        outcome = _extract(code, request, folder)
    except CheckpointError as error:
        outcome = {"refused": error.message}
    except (Refused, UserCodeFailed) as error:
        outcome = {"refused": str(error.args[0])}
    except Exception as error:  # noqa: BLE001 - reported by the process that waits; what this one prints is dropped
        outcome = {"failed": _without_secrets(f"{type(error).__name__}: {error}")}
    (folder / "outcome.json").write_text(json.dumps(outcome))


def _extract(code: UserFunction, request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the files with the rows after a position, and the position after them."""
    import dlt
    from dlt.common.json import json as typed_json

    _collect_secrets()
    resource = _resource(code)
    _require_landable(resource)
    resource.apply_hints(columns=request["hints"], schema_contract={"data_type": "freeze"})
    resource.max_table_nesting = 0
    target = dlt.destinations.dummy(loader_file_format="parquet")
    pipeline = dlt.pipeline(_PIPELINE, pipelines_dir=str(folder / "pipelines"), destination=target)
    if request["position"]:
        with pipeline.managed_state() as state:
            state["sources"] = typed_json.typed_loads(json.dumps(request["position"]))
    try:
        pipeline.extract(resource, loader_file_format="parquet")
        pipeline.normalize()
    except Exception as error:  # noqa: BLE001 - an error of the resource or of its rows, reported without secrets
        cause = _cause(error)
        _refuse_settings(cause)
        _refuse_value(cause, request["hints"])
        return {"failed": _without_secrets(code.describe(cause))}
    position = _ordered(json.loads(typed_json.typed_dumps(dict(pipeline.state.get("sources", {})))))
    _require_storable(position)
    return {"position": position, "files": list(_files(pipeline, resource.name))}


def _resource(code: UserFunction) -> Any:
    """Return the one resource that the code makes. Raises Refused."""
    from dlt.extract import DltResource, DltSource

    loaded = code.load_object()
    if isinstance(loaded, Callable) and not isinstance(loaded, DltResource | DltSource):  # type: ignore[arg-type]
        try:
            loaded = loaded()
        except Exception as error:
            _refuse_settings(error)
            raise Refused(_without_secrets(code.describe(error))) from error
    if isinstance(loaded, DltSource):
        selected = list(loaded.selected_resources.values())
        if len(selected) != 1:
            names = ", ".join(sorted(loaded.selected_resources)) or "none"
            raise Refused(f"expected one resource, got the resources {names}; select one with `with_resources`")
        return selected[0]
    if not isinstance(loaded, DltResource):
        raise Refused(f"expected {code.name} to be or return a dlt resource, got {type(loaded).__name__}")
    return loaded


def _require_landable(resource: Any) -> None:
    """Check that appending its rows is all that the resource needs. Raises Refused."""
    disposition = resource.write_disposition
    name = disposition.get("disposition") if isinstance(disposition, dict) else disposition
    if callable(resource.table_name) or callable(disposition):
        raise Refused("its table name and write_disposition must be fixed; they are computed per row")
    hints = resource.compute_table_schema()["columns"].values()
    has_key = any(hint.get("primary_key") or hint.get("merge_key") for hint in hints)
    if name == "merge" and not has_key:
        raise Refused("write_disposition merge needs a primary_key or merge_key; its rows are landed as they come")
    if name not in ("append", "merge"):
        raise Refused(f"expected write_disposition append or keyed merge, got {name!r}: a log has no replace")


def _files(pipeline: Any, table: str) -> Iterator[str]:
    """Yield the Parquet files of the table, in the order of their rows. Raises Refused: there is another table."""
    for load_id in pipeline.list_normalized_load_packages():
        jobs = pipeline.get_load_package_info(load_id).jobs["new_jobs"]
        tables = sorted({job.job_file_info.table_name for job in jobs if not _is_internal(job)})
        if len(tables) > 1:
            raise Refused(f"expected the rows of one table, got {', '.join(tables)}; nested tables are not landed")
        yield from (job.file_path for job in jobs if not _is_internal(job))


def _is_internal(job: Any) -> bool:
    return bool(job.job_file_info.table_name.startswith("_dlt"))


def _cause(error: BaseException) -> BaseException:
    """Return the error of the user's code, which dlt wraps."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _refuse_settings(error: BaseException) -> None:
    """Raise Refused if the error is that settings of the resource have no value."""
    from dlt.common.configuration.exceptions import ConfigFieldMissingException

    if isinstance(error, ConfigFieldMissingException):
        own = f"{_PIPELINE.upper()}__"
        traces: dict[str, Any] = dict(error.traces)
        keys = [next(trace.key for trace in tried if not trace.key.startswith(own)) for tried in traces.values()]
        raise Refused(
            f"dlt found no value of its settings {', '.join(traces)}: neither {', '.join(keys)} in the "
            "environment, nor `.dlt/config.toml` or `.dlt/secrets.toml` next to the spec, has one"
        ) from error


def _refuse_value(error: BaseException, hints: Mapping[str, Mapping[str, str]]) -> None:
    """Raise Refused if the error is that a value does not fit the type of its column."""
    from dlt.common.schema.exceptions import DataValidationError

    if isinstance(error, DataValidationError) and error.schema_entity == "data_type":
        column, _, got = error.column_name.partition("__v_")
        expected = hints.get(column, {}).get("data_type", "another type")
        row = str(error).partition("Offending data item: ")[2]
        where = f"the row with {row}" if row else "a row"
        raise Refused(
            _without_secrets(f"{where} does not fit its `schema`: column {column}: dlt expected {expected}, got {got}")
        ) from error


def _ordered(value: Any, key: str = "") -> Any:
    """Return the state with its sets of hashes in order, so that the same state is the same position."""
    if isinstance(value, dict):
        return {name: _ordered(item, name) for name, item in value.items()}
    return sorted(value) if key == "unique_hashes" else value


def _require_storable(position: Any) -> None:
    text = json.dumps(position)
    if len(text) > STATE_BYTES:
        raise Refused(f"its state has {len(text):,} bytes, more than the {STATE_BYTES:,} of a position")
    for name, secret in _SECRETS:
        if json.dumps(secret)[1:-1] in text:
            raise Refused(f"its state has the value of the secret {name}, and a position is stored and shown")


def _without_secrets(text: str) -> str:
    for _, secret in _SECRETS:
        text = text.replace(secret, "***")
    return text


def _collect_secrets() -> None:
    """Collect name and value of each secret that dlt reads from now on, on any thread. dlt does not store them."""
    from dlt.common.configuration.specs.base_configuration import is_secret_hint
    from dlt.common.configuration.utils import TraceLogContext

    original = TraceLogContext.log

    def log(self: TraceLogContext, trace: Any) -> None:
        if "secrets" in trace.provider_name or is_secret_hint(trace.hint):
            _SECRETS.extend((trace.key, text) for text in _texts(trace.value) if len(text) >= _MIN_SECRET_CHARACTERS)
        original(self, trace)

    TraceLogContext.log = log  # type: ignore[method-assign]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _end_with_parent() -> None:
    """End this process when the landing that started it ends, which closes the pipe. User code gets an empty stdin."""
    pipe = os.dup(sys.stdin.fileno())
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def wait() -> None:
        os.read(pipe, 1)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_with_parent()
    main(Path(sys.argv[1]))
