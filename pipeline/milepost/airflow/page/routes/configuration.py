"""The configuration of a job as it is in force: each setting, its default, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from pydantic_core import PydanticUndefined

from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.jobmaster.jobmaster import CheckpointReport, JobMaster
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.values.docstrings import parse_docstring
from milepost.jobspec.values.fields import SpecModel
from milepost.jobspec.values.times.durations import format_duration

router = APIRouter()

_LONGEST = 400
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of the spec; default: None for one that must be written."""

    name: str
    value: str
    default: str | None
    meaning: str

    @property
    def differs(self) -> bool:
        return self.value != self.default


@dataclass(frozen=True, slots=True)
class Section:
    """Settings that belong together."""

    title: str
    settings: tuple[Setting, ...]

    @property
    def changed(self) -> int:
        return sum(one.differs and one.default is not None for one in self.settings)


@router.get("/configuration")
def configuration(at: OpenedJob) -> HTMLResponse:
    """All settings, with those that the head was made with another value of told as such."""
    made_with = at.ask(_head)
    sections = list(sections_of(at.loaded.spec))
    return at.render(
        "configuration.html",
        "configuration",
        parts=sections,
        changed=sum(section.changed for section in sections),
        head=made_with,
        same_spec=made_with is not None and made_with.spec_hash == at.loaded.spec_hash,
    )


def _head(master: JobMaster) -> CheckpointReport | None:
    newest = master.history_page(1, status="completed").checkpoints
    return newest[0] if newest else None


def sections_of(spec: JobSpec) -> Iterator[Section]:
    """Yield the settings of a spec that say how a job runs; what it computes is in its graph."""
    yield Section("Checkpointing", tuple(settings_of(spec.checkpointing)))
    if spec.schedule is not None:
        yield Section("Schedule", tuple(settings_of(spec.schedule)))
    for name, source in spec.sources.items():
        yield Section(f"Source {name}", tuple(settings_of(source)))
    yield Section("Spark", tuple(settings_of(spec.spark)))
    yield Section("Airflow", tuple(settings_of(spec.airflow)))
    yield Section("Store", tuple(settings_of(spec.store)))
    if spec.prices is not None:
        yield Section("Prices", tuple(settings_of(spec.prices)))


def settings_of(part: SpecModel, prefix: str = "") -> Iterator[Setting]:
    """Yield the settings of a part of a spec, those of parts in it by their path."""
    about, meanings = parse_docstring(type(part).__doc__ or "")[0], _meanings(type(part))
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        key = f"{prefix}{field.alias or name}"
        if isinstance(value, SpecModel):
            yield from settings_of(value, f"{key}.")
            continue
        default = field.get_default(call_default_factory=True)
        yield Setting(
            key, in_words(value), None if default is PydanticUndefined else in_words(default), meanings.get(name, about)
        )


def _meanings(part: type[SpecModel]) -> dict[str, str]:
    """Return what the docstrings of a part, and of what it extends, say of its keys."""
    found: dict[str, str] = {}
    for base in part.__mro__[: part.__mro__.index(SpecModel)]:
        found = parse_docstring(base.__doc__ or "")[1] | found
    return found


def in_words(value: object) -> str:
    """Return a value as a spec writes it, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, SpecModel):
        return in_words({key: item for key, item in value if item is not None})
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(f"{key}: {in_words(item)}" for key, item in value.items()) + "}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _cut("[" + ", ".join(map(in_words, value)) + "]")
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
