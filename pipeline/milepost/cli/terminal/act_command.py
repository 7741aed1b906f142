"""Make the command of an act: its options come from the act's fields, and its flow is the same for all acts."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

import typer

from milepost.acts import Act, ActContext, ActPlan, Field
from milepost.cli.terminal.completion import (
    Complete,
    checkpoint_ids,
    file_source_names,
    savepoint_names,
    sink_names,
    source_names,
)
from milepost.cli.terminal.confirmation import DryRun, Yes, agreed
from milepost.cli.terminal.open_job import checkpoint_at, open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.terminal.progress import EpochProgress, copied_to

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster

_COMPLETIONS: dict[str, Complete] = {
    "checkpoints": checkpoint_ids,
    "savepoints": savepoint_names,
    "sinks": sink_names,
    "sources": source_names,
    "files": file_source_names,
}


@dataclass(frozen=True, slots=True)
class Call:
    """A command line: its job, the values of the act's fields, and its switches."""

    output: Output
    master: JobMaster
    form: Mapping[str, Any]
    dry_run: bool
    yes: bool


@dataclass(frozen=True, slots=True)
class Instead:
    """A switch with which the command does something else for the job than the act."""

    option: str
    help: str
    run: Callable[[Call], None]


@dataclass(frozen=True, slots=True)
class ActCommand:
    """The command of an act.

    Attributes:
        name: of the command; "" for the act's own.
        asks: whether it shows the plan and asks for confirmation, unless `--yes` is given.
        plans: whether it has `--dry-run`. is_long: whether it shows the progress of the work.
    """

    act: Act[Any]
    name: str = ""
    asks: bool = False
    plans: bool = False
    is_long: bool = False
    instead: Instead | None = None

    def register(self, app: typer.Typer) -> None:
        """Add the command to the group."""

        def command(ctx: typer.Context, **values: Any) -> None:
            self._run(ctx.obj, values)

        command.__signature__ = Signature(list(self._parameters()))  # type: ignore[attr-defined]
        app.command(self.name or self.act.name, help=self.act.help)(command)

    def _parameters(self) -> Iterator[Parameter]:
        yield Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        yield Parameter("job", Parameter.KEYWORD_ONLY, annotation=Job)
        for field in self.act.fields:
            yield _typer_parameter(field, required=field.required and not self.instead)
        if self.instead is not None:
            yield _parameter("instead", typer.Option(False, self.instead.option, help=self.instead.help), bool)
        switches = {"dry_run": DryRun if self.plans else None, "yes": Yes if self.asks else None}
        for name, kind in {**switches, "as_json": Json, "verbose": Verbose}.items():
            if kind is not None:
                yield _parameter(name, False, kind)

    def _run(self, output: Output, values: Mapping[str, Any]) -> None:
        form = {field.name: values[f"{field.name}_"] for field in self.act.fields}
        instead = self.instead if values.get("instead") else None
        if instead is None:
            self._require(form)
        master = open_job(values["job"], ahead=True)
        for field in self.act.fields:
            if field.kind.or_moment:
                form[field.name] = checkpoint_at(master, form[field.name])
        call = Call(output, master, form, values.get("dry_run", False), values.get("yes", False))
        if instead is not None:
            instead.run(call)
        else:
            self.carry_out(call)

    def _require(self, form: Mapping[str, Any]) -> None:
        """Raise BadParameter: a field is missing that the act requires, and what the command does instead does not."""
        for field in self.act.fields:
            if field.required and form[field.name] is None:
                other = f", or {self.instead.option} instead" if self.instead else ""
                raise typer.BadParameter(f"expected {field.kind.metavar}{other}", param_hint=field.option)

    def carry_out(self, call: Call) -> None:
        """Show the plan, ask for confirmation, and carry it out, as far as the command has these."""
        from milepost.jobmaster import Session

        act, output, approved = self.act, call.output, None
        if act.takes_plan or call.dry_run or (self.asks and not call.yes):
            plan = act.plan(call.master, call.form)
            if not _agreed(plan, call):
                return
            approved = plan.shown if act.takes_plan else None
        session = Session.cli()
        with EpochProgress() if self.is_long else nullcontext(_quiet) as progress:
            context = ActContext(
                call.master,
                session,
                call.form,
                session.decision(f"milepost {' '.join(self._typed(call.form))}"),
                approved,
                progress=progress,
                copied=copied_to(progress),
            )
            done = output.as_typed(act.carry_out(context))
        failure = act.failure(done)
        if output.json:
            output.document(done, ok=failure is None)
        else:
            for line in (*act.details(done), *(act.result(context, done).text if failure is None else ())):
                output.text(output.as_typed(line))
            if next_step := getattr(done, "next_step", ""):
                output.text(f"next: {next_step}")
        if failure is not None:
            raise typer.Exit(failure.exit_code)

    def _typed(self, form: Mapping[str, Any]) -> Iterator[str]:
        """Yield the words of the command, without the job."""
        yield self.name or self.act.name
        for field in self.act.fields:
            value = form[field.name]
            if value != field.default:
                yield from () if field.is_argument else (field.option,)
                yield from () if value is True else (shlex.quote(str(value)),)


def _agreed(plan: ActPlan, call: Call) -> bool:
    shown, as_typed = plan.shown, call.output.as_typed
    question, document = f"{shown.subject}. Continue?", as_typed(plan.document)
    return agreed(
        as_typed(shown.text), question, call.output, document, dry_run=call.dry_run, yes=call.yes, idle=shown.idle
    )


def _parameter(name: str, default: object, annotation: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _typer_parameter(field: Field, *, required: bool) -> Parameter:
    """Return the parameter of a field, as Typer reads it from a signature."""
    kind, name = field.kind, f"{field.name}_"
    if kind.type is bool:
        return _parameter(name, typer.Option(field.default, field.option, help=field.help), bool)
    optional = not required and field.default is None
    about: dict[str, Any] = {
        "metavar": f"[{kind.metavar}]" if field.is_argument and optional else kind.metavar,
        "help": f"{field.help} A time means the newest one triggered by then." if kind.or_moment else field.help,
        "autocompletion": _COMPLETIONS.get(kind.suggests),
        "min": None if kind.or_moment else kind.lowest,
    }
    default = ... if required else field.default
    info = typer.Argument(default, **about) if field.is_argument else typer.Option(default, field.option, **about)
    value = str if kind.or_moment else kind.type
    return _parameter(name, info, value | None if optional else value)


def _quiet(step: str) -> None:
    """Ignore a step of short work."""
