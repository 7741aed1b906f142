"""The command `spark-server`, which runs a local Spark Connect server."""

from __future__ import annotations

import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from milepost.cli.terminal.options import Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.epoch import private_cache
from milepost.errors import EnvironmentUnusable
from milepost.extras import require
from milepost.language import DEFAULT_PORT, REMOTE_VARIABLE, TOKEN_VARIABLE


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command("spark-server")(spark_server)


def spark_server(
    ctx: typer.Context,
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Port on loopback.")] = DEFAULT_PORT,
    cores: Annotated[
        int, typer.Option("--cores", min=1, metavar="N", help="Number of tasks that run concurrently.")
    ] = 2,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", metavar="FILE", help="File with the clients' token. Created if it does not exist."
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Run a Spark Connect server on loopback, behind a token, until Ctrl-C.

    Epochs of specs with its address as `spark.remote` start within seconds, because Spark is already running.
    """
    require("spark", "a Spark Connect server")
    from milepost.spark.driver.engines import connect_token, require_free_port, serve_connect

    output: Output = ctx.obj
    file = token_file or private_cache() / "spark-token"
    secret, log = connect_token(file), private_cache() / "spark-server.log"
    require_free_port(port)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))  # unwinds the stack and so ends the server
    output.note("starting Spark")
    with serve_connect(port, secret, cores, log) as server:
        about = {"remote": f"sc://localhost:{port}", "token_file": str(file), "log": str(log), "pid": server.pid}
        if output.json:
            output.document(about)
        else:
            output.text(f"Spark Connect server at {about['remote']}, on loopback only; Ctrl-C stops it")
            output.text(f"in a shell:  export {REMOTE_VARIABLE}={about['remote']}")
            output.text(f'             export {TOKEN_VARIABLE}="$(cat {shlex.quote(str(file))})"')
            output.text(f'in a spec:   spark: {{remote: "${{env:{REMOTE_VARIABLE}:-}}"}}, as `milepost init` writes it')
        code = server.wait()
    raise EnvironmentUnusable(
        f"the Spark Connect server stopped unexpectedly, with exit code {code}.", hint=f"see {log}"
    )
