"""Write the example jobs of the package, for `milepost init --example`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.jobspec.load import read_document
from milepost.language import SINK_FORMATS, did_you_mean

"""Formats of sinks that need an extra of their name."""


@dataclass(frozen=True, slots=True)
class WrittenExample:
    """An example that was written.

    Attributes:
        files: paths relative to the target folder, the spec first. extras: the extras that its job needs.
        first_sink: a sink to read.
    """

    files: list[Path]
    extras: tuple[str, ...]
    first_sink: str


def example_names() -> list[str]:
    """Return the names of all examples."""
    return sorted(one.name.removesuffix(".yaml") for one in _folder().iterdir() if one.name.endswith(".yaml"))


def write_example(name: str, root: Path) -> WrittenExample:
    """Write `config/<name>.yaml` and the data that its sources read below `config/`.

    Examples share data: an existing file with the same bytes is left unchanged.

    Raises:
        InvalidRequest: no such example, or a file exists with other content. Nothing was written.
        EnvironmentUnusable: the folder cannot be written.
    """
    known = example_names()
    if name not in known:
        raise InvalidRequest(f"there is no example {name}; {did_you_mean(name, known)}. Nothing was written.")
    spec = _folder() / f"{name}.yaml"
    document = read_document(spec.read_text(encoding="utf-8")).value
    bodies = {Path("config") / spec.name: spec.read_bytes()}
    for folder in dict.fromkeys(source["path"].split("/")[0] for source in document["sources"].values()):
        bodies |= _below(_folder() / folder, Path("config") / folder)
    missing = {path: body for path, body in bodies.items() if not _is_there(root, path, body)}
    try:
        for path, body in missing.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            with (root / path).open("xb") as stream:
                stream.write(body)
    except OSError as problem:
        raise EnvironmentUnusable(f"{problem.filename} cannot be written: {problem.strerror}.") from None
    return WrittenExample(list(missing), _extras(document), document["sinks"][0]["name"])


def _folder() -> Traversable:
    return files("milepost.cli.workspace") / "examples"


def _below(folder: Traversable, path: Path) -> dict[Path, bytes]:
    """Return the files below a folder by path."""
    found: dict[Path, bytes] = {}
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        found |= _below(one, path / one.name) if one.is_dir() else {path / one.name: one.read_bytes()}
    return found


def _is_there(root: Path, path: Path, body: bytes) -> bool:
    """Return whether a data file already exists. Raises InvalidRequest: a different file has its path."""
    place = root / path
    if not place.exists() and not place.is_symlink():
        return False
    if path.suffix == ".yaml" or not place.is_file() or place.read_bytes() != body:
        raise InvalidRequest(
            f"{path} already exists. Nothing was written.", hint="Move it away, or write the example in another folder."
        )
    return True


def _extras(document: dict[str, Any]) -> tuple[str, ...]:
    formats = {sink["format"] for sink in document["sinks"]}
    quality = ("quality",) if document.get("quality") else ()
    return (
        "spark",
        *quality,
        *(name for name in SINK_FORMATS if name in formats and not SINK_FORMATS[name].is_managed),
    )
