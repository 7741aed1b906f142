"""`milepost`: the group of commands, and the one place that turns an exception into an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from typer._click.exceptions import ClickException, MissingParameter, NoArgsIsHelpError, UsageError
from typer.core import TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo

from milepost import __version__
from milepost.cli.reading import checkpoints, data, diff, health, jobs, plot, runbook, show
from milepost.cli.running import control, epochs
from milepost.cli.switching import backfill, migrate, realign, rollback, savepoints
from milepost.cli.terminal.failures import INTERRUPTED, report, usage
from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.workspace import maintenance, server, specs, testing
from milepost.errors import CheckpointError
from milepost.jobspec.values.suggestions import nearest


@contextlib.contextmanager
def _without_errno() -> Iterator[None]:
    """Keep a broken pipe from Typer, which ends the process with exit code 1 where the error's number is EPIPE."""
    try:
        yield
    except BrokenPipeError as error:
        raise BrokenPipeError("the reader of the output is gone") from error


class MilepostGroup(TyperGroup):
    """Resolves commands, and ends the process with the exit code that the outcome asks for."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            return command
        near = nearest(cmd_name, self.list_commands(ctx))
        guess = f" Did you mean `milepost {near}`?" if near else ""
        raise UsageError(f"there is no command {cmd_name!r}.{guess}", ctx)

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with _without_errno():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _without_errno():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands below the headings of `_GROUPS`; those of a group in a group have none."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            heading = command.rich_help_panel if isinstance(command.rich_help_panel, str) else "Commands"
            sections.setdefault(heading, []).append((name, command.get_short_help_str(_HELP_WIDTH)))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **extra: Any
    ) -> Any:  # standalone_mode is ours: the exit code is decided here
        words = list(sys.argv[1:] if args is None else args)
        options = words[: words.index("--")] if "--" in words else words
        output = Output(json="--json" in options, verbose="-v" in options or "--verbose" in options)
        if output.verbose:
            logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        extra.pop("standalone_mode", None)
        try:
            result = super().main(words, "milepost", standalone_mode=False, obj=output, **extra)
            code = result if isinstance(result, int) else 0
            if code == INTERRUPTED:  # the library turns Ctrl-C into this code, and says nothing
                code = report(KeyboardInterrupt(), output, reads=only_reads(words))
        except NoArgsIsHelpError as error:
            error.show()
            code = 2
        except UsageError as error:
            # pydantic, by which the library parses, says what kind of error it met before it says the error
            code = usage(error.format_message().replace(": Value error, ", ": ", 1), _usage_hint(error), output)
        except ClickException as error:
            code = usage(error.format_message(), "", output)
        except (typer.Abort, KeyboardInterrupt):
            code = report(KeyboardInterrupt(), output, reads=only_reads(words))
        except typer.Exit as done:
            code = done.exit_code
        except BrokenPipeError:
            # The reader of our output went away, as `| head` does: nothing is wrong, and nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except CheckpointError as error:
            code = report(error, output)
        except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, never a bare trace
            code = report(error, output)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.exit(code)


def _usage_hint(error: UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "milepost"
    usage = f"`{path} --help` shows how it is used."
    if not isinstance(error, MissingParameter) or error.param is None or error.ctx is None:
        return usage
    there = [one.value for one in error.param.shell_complete(error.ctx, "")]
    more = f", and {len(there) - _NAMED} more" if len(there) > _NAMED else ""
    return f"there is {', '.join(there[:_NAMED])}{more}; {usage}" if there else usage


_NAMED = 20
"""Of what could have been typed where a word is missing: so many are shown."""


_HELP_WIDTH = 61
"""Characters of a command's line in `--help`, without its name."""


_SETTINGS: dict[str, Any] = {
    "cls": MilepostGroup,
    "add_completion": True,
    "suggest_commands": False,
    "no_args_is_help": True,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "help": "Stateful, exactly-once data pipelines as scheduled micro-batch epochs.",
    "epilog": "Exit codes: 0 ok, 1 failed, 2 usage or bad spec, 3 not found, 4 fenced or conflict, 5 quality abort, "
    "6 timeout or lag, 7 corrupt checkpoint, 8 environment, 130 interrupted.",
}

app = typer.Typer(**_SETTINGS)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"milepost {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Options that every command takes too."""


_READING = (jobs, checkpoints, show, health, data, diff, plot, runbook)
_GROUPS = {
    "Write and check a job": (specs, testing),
    "Run it": (epochs, control, server),
    "See what it did": _READING,
    "Go back, replay, repair": (rollback, realign, migrate, backfill, maintenance),
    "Keep copies": (savepoints,),
}
"""Heading of `--help` -> the modules of its commands."""


def _register() -> None:
    """Add all commands, each below its heading."""
    for heading, modules in _GROUPS.items():
        for module in modules:
            module.register(app)
        commands: list[Any] = [*app.registered_commands, *app.registered_groups]
        for command in commands:
            if not isinstance(command.rich_help_panel, str):
                command.rich_help_panel = heading


_register()


def only_reads(words: Sequence[str]) -> bool:
    """Return whether a command line asks for a report, or for a plan that changes nothing."""
    asked = _asked(words)
    reading = {module.__name__ for module in _READING}
    named = (one.callback for one in app.registered_commands if _name(one) == asked)
    return any(act is not None and act.__module__ in reading for act in named) or (
        asked == "rollback" and "--dry-run" in words
    )


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return the group with the command alone that a command line names: to build them all takes as long as to run one.

    Where it names none, as for help, or none that there is, the group is whole.
    """
    asked = _asked(words)
    alone = typer.Typer(**_SETTINGS)
    alone.registered_callback = app.registered_callback
    alone.registered_commands = [one for one in app.registered_commands if _name(one) == asked]
    alone.registered_groups = [one for one in app.registered_groups if one.name == asked]
    return alone if alone.registered_commands or alone.registered_groups else app


def _asked(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _name(command: CommandInfo) -> str | None:
    return command.name or (get_command_name(command.callback.__name__) if command.callback is not None else None)


__all__ = ["INTERRUPTED", "app"]
