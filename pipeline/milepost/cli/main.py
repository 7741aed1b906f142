"""The `milepost` command group, and the mapping of exceptions to exit codes."""

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
from milepost.acts import ABORT, CANCEL, FSCK, GC, QUARANTINE, REALIGN, RELEASE, RESUME, START, VERIFY
from milepost.cli.reading import checkpoints, data, diff, health, jobs, plot, runbook, show, table, why
from milepost.cli.running import epochs, landing
from milepost.cli.switching import backfill, migrate, rollback, savepoints
from milepost.cli.terminal.act_command import ActCommand
from milepost.cli.terminal.failures import INTERRUPTED, report, usage
from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.workspace import server, specs, testing
from milepost.errors import CheckpointError
from milepost.language import nearest


@contextlib.contextmanager
def _without_errno() -> Iterator[None]:
    """Hide the errno of a broken pipe from Typer, which exits with code 1 on EPIPE."""
    try:
        yield
    except BrokenPipeError as error:
        raise BrokenPipeError("the reader of the output has exited") from error


class MilepostGroup(TyperGroup):
    """Resolves commands, and exits with the code of the outcome."""

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
        """Write the commands below the headings of `_GROUPS`. Commands of a nested group have no headings."""
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
    ) -> Any:  # always standalone_mode=False, because this method decides the exit code
        words = list(sys.argv[1:] if args is None else args)
        options = words[: words.index("--")] if "--" in words else words
        output = Output(json="--json" in options, verbose="-v" in options or "--verbose" in options)
        if output.verbose:
            logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        extra.pop("standalone_mode", None)
        try:
            result = super().main(words, "milepost", standalone_mode=False, obj=output, **extra)
            code = result if isinstance(result, int) else 0
            if code == INTERRUPTED:  # Typer turns Ctrl-C into this code without a message
                code = report(KeyboardInterrupt(), output, reads=only_reads(words))
        except NoArgsIsHelpError as error:
            error.show()
            code = 2
        except UsageError as error:
            # Typer parses with pydantic, which puts the kind of error before its message.
            code = usage(error.format_message().replace(": Value error, ", ": ", 1), _usage_hint(error), output)
        except ClickException as error:
            code = usage(error.format_message(), "", output)
        except (typer.Abort, KeyboardInterrupt):
            code = report(KeyboardInterrupt(), output, reads=only_reads(words))
        except typer.Exit as done:
            code = done.exit_code
        except BrokenPipeError:
            # The reader of our output has exited, as in `milepost … | head`. This is not an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 0
        except CheckpointError as error:
            code = report(error, output)
        except Exception as error:  # noqa: BLE001 - the last resort: one line for the user, never a bare trace
            code = report(error, output, reads=only_reads(words))
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.exit(code)


def _usage_hint(error: UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "milepost"
    usage = f"`{path} --help` shows its usage."
    if not isinstance(error, MissingParameter) or error.param is None or error.ctx is None:
        return usage
    choices = [completion.value for completion in error.param.shell_complete(error.ctx, "")]
    more = f", and {len(choices) - _MAX_CHOICES} more" if len(choices) > _MAX_CHOICES else ""
    return f"choose from {', '.join(choices[:_MAX_CHOICES])}{more}; {usage}" if choices else usage


_MAX_CHOICES = 20
"""Most values that a hint lists for a missing argument."""


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


def _version(requested: bool) -> None:
    if requested:
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
    """Options that every command also accepts."""


_READING = "See what it did"
_GROUPS: dict[str, tuple[Any, ...]] = {
    "Write and check a job": (specs, testing),
    "Run it": (
        epochs,
        landing,
        ActCommand(ABORT),
        ActCommand(CANCEL, asks=True),
        ActCommand(START),
        ActCommand(RESUME),
        server,
    ),
    _READING: (jobs, checkpoints, ActCommand(VERIFY), show, health, table, data, diff, why, plot, runbook),
    "Go back, replay, repair": (
        rollback.COMMAND,
        ActCommand(REALIGN, asks=True, plans=True),
        migrate,
        backfill.COMMAND,
        ActCommand(QUARANTINE, asks=True, plans=True),
        ActCommand(RELEASE, asks=True, plans=True),
        ActCommand(FSCK),
        ActCommand(GC, plans=True),
    ),
    "Keep copies": (savepoints,),
}
"""Heading of `--help` -> what registers its commands: modules and acts."""


def _register() -> None:
    """Register all commands, each below its heading."""
    for heading, members in _GROUPS.items():
        for member in members:
            member.register(app)
        commands: list[Any] = [*app.registered_commands, *app.registered_groups]
        for command in commands:
            if not isinstance(command.rich_help_panel, str):
                command.rich_help_panel = heading


_register()


_NEEDS_PANDAS = frozenset({"backfill", "why"})
"""Commands that only read and need pandas: plans that build the gate's expectations, and replays of users' code."""


def only_reads(words: Sequence[str]) -> bool:
    """Return whether a command line changes nothing: a report, or a plan with `--dry-run`."""
    name = _command_name(words)
    reads = any(_name(command) == name and command.rich_help_panel == _READING for command in app.registered_commands)
    return reads or "--dry-run" in words


def needs_pandas(words: Sequence[str]) -> bool:
    """Return whether a command line needs pandas although it only reads."""
    return _command_name(words) in _NEEDS_PANDAS


def app_for(words: Sequence[str]) -> typer.Typer:
    """Return a group with only the command that a command line names, because building all of them takes long.

    Without a command, as for help, or with an unknown one, return the complete group.
    """
    name = _command_name(words)
    single = typer.Typer(**_SETTINGS)
    single.registered_callback = app.registered_callback
    single.registered_commands = [command for command in app.registered_commands if _name(command) == name]
    single.registered_groups = [group for group in app.registered_groups if group.name == name]
    return single if single.registered_commands or single.registered_groups else app


def _command_name(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _name(command: CommandInfo) -> str | None:
    return command.name or (get_command_name(command.callback.__name__) if command.callback is not None else None)


__all__ = ["INTERRUPTED", "app"]
