"""The configuration page: each setting's value, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic_core import PydanticUndefined

from milepost.airflow.page.frame.access import READS_CODE
from milepost.airflow.page.jobs.job_page import OpenedJob
from milepost.jobmaster import CheckpointReport, JobMaster
from milepost.jobspec.job import JobSpec
from milepost.language import SpecModel, parse_docstring
from milepost.language.times import format_duration

router = APIRouter(dependencies=[READS_CODE])

_MAX_CHARACTERS = 400
"""Most characters of a value that the page shows."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A key of the spec. default: None for a required key."""

    name: str
    value: str
    default: str | None
    meaning: str

    @property
    def differs(self) -> bool:
        return self.value != self.default


@dataclass(frozen=True, slots=True)
class Section:
    """The settings of one part of the spec."""

    title: str
    settings: tuple[Setting, ...]

    @property
    def changed(self) -> int:
        return sum(setting.differs and setting.default is not None for setting in self.settings)


@router.get("/configuration")
@router.get("/configuration.json")
def configuration(job_page: OpenedJob) -> Response:
    """Show all settings, and whether the head was made with the same spec."""
    head = job_page.query(_head)
    sections = list(sections_of(job_page.loaded.spec))
    same_spec = head is not None and head.spec_hash == job_page.loaded.spec_hash
    return job_page.render(
        "configuration.html",
        "configuration",
        document={
            "spec": job_page.loaded.path.name,
            "text": job_page.loaded.text,
            "storage": job_page.loaded.spec.storage,
            "head": None if head is None else head.checkpoint_id,
            "same_spec": same_spec,
            "sections": sections,
        },
        parts=sections,
        changed=sum(section.changed for section in sections),
        head=head,
        same_spec=same_spec,
    )


def _head(master: JobMaster) -> CheckpointReport | None:
    newest = master.reports.history_page(1, status="completed").checkpoints
    return newest[0] if newest else None


def sections_of(spec: JobSpec) -> Iterator[Section]:
    """Yield the settings that control how a job runs. Its operators and sinks are in its graph."""
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
    """Yield the settings of a part of a spec; keys of nested parts are dotted paths, such as `bad_records.max_rows`."""
    summary, meanings = parse_docstring(type(part).__doc__ or "")[0], _meanings(type(part))
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        key = f"{prefix}{field.alias or name}"
        if isinstance(value, SpecModel):
            yield from settings_of(value, f"{key}.")
            continue
        default = field.get_default(call_default_factory=True)
        yield Setting(
            key,
            yaml_text(value),
            None if default is PydanticUndefined else yaml_text(default),
            meanings.get(name, summary),
        )


def _meanings(part: type[SpecModel]) -> dict[str, str]:
    """Return the meaning of each key, from the docstrings of a part and of its base classes."""
    meanings: dict[str, str] = {}
    for base in part.__mro__[: part.__mro__.index(SpecModel)]:
        meanings = parse_docstring(base.__doc__ or "")[1] | meanings
    return meanings


def yaml_text(value: object) -> str:
    """Return a value as in a spec, on one line: None is `null`, 90 seconds are `90s`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, SpecModel):
        return yaml_text({key: item for key, item in value if item is not None})
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(f"{key}: {yaml_text(item)}" for key, item in value.items()) + "}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _cut("[" + ", ".join(map(yaml_text, value)) + "]")
    return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"
