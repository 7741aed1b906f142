"""The command `test`, which runs the test cases of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import counted
from milepost.errors import CheckpointError, NotFound

if TYPE_CHECKING:
    from milepost.testing import CaseResult

_FOLDER = Path("tests")


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(name="test")(test)


def test(
    ctx: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PATH…]", help="Case files, or folders of case files. Default: tests/."),
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Write the actual output into the files as the expected output, for review."),
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run the test cases of jobs in this process. Only SQL runs on Spark."""
    from milepost.spark.local import LocalRunner
    from milepost.testing import find_case_files, load_cases, run_case
    from milepost.testing import record as write

    output: Output = ctx.obj
    files = find_case_files(places or [_FOLDER])
    if not files:
        raise NotFound(
            f"no file in {', '.join(map(str, places or [_FOLDER]))} begins with `milepost_test: 1`. Nothing was run.",
            hint="docs/how-to/test-a-job.md shows one",
        )
    runner = LocalRunner()
    results: list[CaseResult] = []
    for path in files:
        cases = load_cases(path)
        of_file: list[CaseResult] = []
        for name in cases.file.cases:
            of_file.append(run_case(cases, name, runner, record=record))
            _show(of_file[-1], output)
        if record:
            write(path, of_file)
        results += of_file
    failed = [result for result in results if not result.passed]
    if output.json:
        output.document({"cases": results, "failed": len(failed)}, ok=not failed)
    elif record:
        output.note(f"{counted(len(files), 'file')} recorded: look at what they expect now before you keep it")
    else:
        output.text(f"{counted(len(results), 'case')}, {len(failed) or 'none'} failed")
    raise typer.Exit(CheckpointError.exit_code if failed else 0)


def _show(result: CaseResult, output: Output) -> None:
    from milepost.jobspec.load import shown_path

    if output.json:
        return
    word = "ok  " if result.passed else "FAIL"
    output.text(f"{word}  {shown_path(Path(result.path))}: {result.case} ({result.ms / 1000:.2f} s)")
    for line in result.faults:
        output.text(f"      {line}")
