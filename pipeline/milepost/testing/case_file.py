"""A case file says, per case, which rows come and what must be there after each step.

Its first line is `milepost_test: 1`. Read as a spec is: YAML 1.2 with positions, unknown keys are errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from milepost.errors import InvalidRequest, NotFound
from milepost.jobspec.load import CONFIG_FOLDER, Document, Unreadable, read_document, shown_path
from milepost.language import Many, Problem, SpecModel, Text, did_you_mean, invalid_spec

FIRST_LINE = "milepost_test: 1"
SUFFIXES = (".yaml", ".yml")

Row = dict[Text, Any]


class File(SpecModel):
    """An object that lands as it is.

    Attributes:
        file: its path, relative to the case file.
    """

    file: Text


class Backfill(SpecModel):
    """Arguments of `milepost backfill`.

    Attributes:
        from_checkpoint: the checkpoint that the fork begins at. from, to: event times.
    """

    from_checkpoint: int | None = None
    from_: Annotated[Text | None, Field(alias="from")] = None
    to: Text | None = None


class Expected(SpecModel):
    """What must be there after a step.

    Attributes:
        tables: rows by sink, by `<uid>.late` or `<source>.bad`, or by operator, of which all that it has put out is
            compared. Columns that no row names are not compared; the order of rows does not matter.
        state: rows by operator, as `milepost state` shows them.
        verdict: of the epoch's quality gate.
        refused: words of the error with which the step ends; it must end so.
    """

    tables: dict[Text, Many[Row]] = Field(default_factory=dict)
    state: dict[Text, Many[Row]] = Field(default_factory=dict)
    verdict: Literal["passed", "warning", "vetoed", "skipped"] | None = None
    refused: Text | None = None


_ACTIONS = ("epoch", "rollback", "backfill", "spec", "resume")


class Step(SpecModel):
    """One thing that happens to the job.

    Attributes:
        epoch: objects that land, by source, as rows or as a file, of a static source in place of what it held; then one
            epoch runs.
        kill: of an epoch: its process ends after its tasks, before the commit point (run), or after that, before the
            tables show it (complete). The next step comes upon what it left.
        rollback: to this checkpoint. backfill: recorded input is processed again, and takes the live timeline's place.
        spec: texts of the spec, each replaced by another one; from here on.
        resume: a job that a veto has stopped may run again.
        expect: None: nothing is compared.
    """

    epoch: dict[Text, Many[Row] | File] | None = None
    kill: Literal["run", "complete"] | None = None
    rollback: int | None = None
    backfill: Backfill | None = None
    spec: dict[Text, str] | None = None
    resume: Literal[True] | None = None
    expect: Expected | None = None

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        asked = [name for name in _ACTIONS if getattr(self, name) is not None]
        if len(asked) != 1:
            raise ValueError(f"a step is one of {', '.join(_ACTIONS)}; got {' and '.join(asked) or 'none'}")
        if self.kill is not None and self.epoch is None:
            raise ValueError("`kill` ends an epoch: write it next to `epoch`")
        return self


class CaseFile(SpecModel):
    """The cases of one file.

    Attributes:
        milepost_test: version of this format.
        job: the spec, relative to this file; null: of the name that this file's folder has, in the working directory's
            `config/`.
        parallelism: subtasks per level.
        cases: steps by what they show.
    """

    milepost_test: Literal[1]
    job: Text | None = None
    parallelism: Annotated[int, Field(ge=1, le=8)] = 1
    cases: Annotated[dict[Text, Annotated[Many[Step], Field(min_length=1)]], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class LoadedCases:
    """A case file that was read.

    Attributes:
        path: absolute. spec: where the job's spec must be.
    """

    path: Path
    spec: Path
    file: CaseFile


def is_case_file(path: Path) -> bool:
    """Return whether a file says in its first line that it holds cases."""
    if path.suffix not in SUFFIXES:
        return False
    try:
        with path.open(encoding="utf-8") as lines:
            return lines.readline().strip() == FIRST_LINE
    except (OSError, UnicodeDecodeError):
        return False


def find_case_files(places: Iterable[Path]) -> list[Path]:
    """Return case files: those that are named, and all below folders that are.

    Raises: NotFound: there is no such place, or a file that is named is none.
    """
    found: list[Path] = []
    for place in places:
        if place.is_dir():
            found += sorted(path for path in place.rglob("*") if is_case_file(path))
        elif not place.is_file():
            raise NotFound(f"there is no {place}. Nothing was run.")
        elif is_case_file(place):
            found.append(place)
        else:
            raise NotFound(f"{shown_path(place)} does not begin with `{FIRST_LINE}`. Nothing was run.")
    return list(dict.fromkeys(found))


def load_cases(path: Path) -> LoadedCases:
    """Read a case file. Raises InvalidRequest: all its problems, with their places."""
    try:
        document = read_document(path.read_text(encoding="utf-8"))
    except Unreadable as problem:
        raise _invalid(path, [Problem((), problem.message)], Document()) from None
    problems = list(document.problems)
    try:
        file = CaseFile.model_validate(document.value)
    except ValidationError as failure:
        problems += [_problem(error, document) for error in _told(failure)]
    if problems:
        raise _invalid(path, problems, document)
    name = f"{path.absolute().parent.name}.yaml"
    spec = Path.cwd() / CONFIG_FOLDER / name if file.job is None else path.absolute().parent / file.job
    return LoadedCases(path.absolute(), spec, file)


def _told(failure: ValidationError) -> list[Mapping[str, Any]]:
    """Return the errors, except that a list is too short because its items have errors of their own."""
    errors: list[Mapping[str, Any]] = [*failure.errors()]
    within = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    return [error for error in errors if error["type"] != "too_short" or error["loc"] not in within]


def _problem(error: Mapping[str, Any], document: Document) -> Problem:
    return Problem(_path(error["loc"], document), _words(error), at_key=error["type"] == "extra_forbidden")


def _path(loc: tuple[int | str, ...], document: Document) -> tuple[int | str, ...]:
    """Return the part of a place that the file has: pydantic also names the kinds of value that it tried."""
    path: tuple[int | str, ...] = ()
    for part in loc:
        if (*path, part) in document.values:
            path = (*path, part)
    return path


def _words(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        *place, name = error["loc"]
        parent = place[-1] if place else ""
        models: dict[str, type[SpecModel]] = {"": CaseFile, "expect": Expected, "backfill": Backfill}
        model = models.get(str(parent), Step)
        known = [field.alias or key for key, field in model.model_fields.items()]
        return f"unknown key `{name}`; {did_you_mean(str(name), known)}"
    return str(error["msg"])


def _invalid(path: Path, problems: list[Problem], document: Document) -> InvalidRequest:
    error = invalid_spec(problems, file=shown_path(path), keys=document.keys, values=document.values)
    text = error.message.replace("is not a valid job spec", "is not a valid case file", 1)
    return InvalidRequest(text, hint="correct it; docs/how-to/test-a-job.md shows one")
