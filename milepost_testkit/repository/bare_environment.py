"""A virtual environment of its own, made of what pip installs: nothing of the clone is on any path of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from milepost_testkit.processes.processes import LOOPBACK, accepts, free_ports, stop_tree, wait_until

DISK = "/var/tmp"
"""Not in memory, where tests write what is small: Spark and Airflow are 2 GB."""

INHERITED = ("PIP_", "SSL_", "LC_")
SERVER_S = 120


@dataclass(frozen=True)
class BareEnvironment:
    """An environment below `folder`, and a folder `work` to be in."""

    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def program(self, name: str) -> str:
        return str(self.folder / "env" / "bin" / name)

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return what a login would set, and how pip is to reach its index."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
        return kept | {
            "PATH": os.pathsep.join((str(self.folder / "env" / "bin"), os.defpath)),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_PROXY": LOOPBACK,
            "no_proxy": LOOPBACK,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            **(more or {}),
        }

    def pip(self, *words: str | Path) -> str:
        """Run pip; return what it prints. AssertionError: it failed."""
        ran = self.run(self.program("python"), "-m", "pip", "--no-input", *words, seconds=1800)
        assert ran.returncode == 0, f"{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}"
        return ran.stdout

    def milepost(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the command that pip installed, in `work`; its exit code is not judged."""
        return self.run(self.program("milepost"), *words, environ=more)

    def python(self, code: str, *words: str | Path, **more: str) -> str:
        """Run code; return what it prints. AssertionError: it failed."""
        ran = self.run(self.program("python"), "-c", code, *words, environ=more)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def run(
        self, *command: str | Path, environ: Mapping[str, str] | None = None, seconds: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.work, env=self.environ(environ), capture_output=True, text=True, timeout=seconds, check=False,
        )  # fmt: skip

    @contextmanager
    def connect_server(self, token: str) -> Iterator[str]:
        """The Spark Connect server that the installed command starts, while the block runs; gives its address."""
        (port,) = free_ports(1)
        file = self.folder / "token"
        file.write_text(token, encoding="ascii")
        command = [self.program("milepost"), "spark-server", "--port", str(port), "--token-file", str(file)]
        with (self.folder / "server.log").open("w") as log:
            process = psutil.Popen(command, cwd=self.work, env=self.environ(), stdout=log, stderr=log)
            try:
                wait_until(lambda: accepts(port), seconds=SERVER_S, what="the Connect server", process=process)
                yield f"sc://127.0.0.1:{port}"
            finally:
                stop_tree(process)


@contextmanager
def bare_environment() -> Iterator[BareEnvironment]:
    """An environment with pip alone while the block runs; it is removed with all that was installed."""
    with tempfile.TemporaryDirectory(prefix="milepost-bare-", dir=DISK) as name:
        environment = BareEnvironment(Path(name))
        for folder in ("work", "home", "tmp"):
            (environment.folder / folder).mkdir()
        subprocess.run([sys.executable, "-m", "venv", environment.folder / "env"], check=True, capture_output=True)
        yield environment
