"""Build the environments of a clone. A second run does nothing.

Runs with the interpreter that `scripts/find-python` finds, so it imports only the standard library.
An environment is *built* if its stamp equals the hash of its requirements, its Python and its location. The stamp is
written last, so the next run continues an interrupted build. pip installs the packages, with the user's own index
settings (pip.conf, PIP_INDEX_URL, PIP_CERT, ...).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ((3, 11), (3, 13))


@dataclass(frozen=True)
class Environment:
    """One virtual environment of the clone.

    Attributes:
        folder: below the clone. requirements: full pins. editable: whether the clone itself is installed into it.
        disk_bytes: measured peak while it is built. description: purpose and size, for the progress line.
    """

    folder: str
    requirements: str
    editable: bool
    disk_bytes: int
    description: str

    @property
    def python(self) -> Path:
        return ROOT / self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        return ROOT / self.folder / ".milepost-stamp"

    def identity(self) -> str:
        """Return a hash of everything that determines the content of the environment."""
        parts = [(ROOT / self.requirements).read_bytes(), str(ROOT).encode(), sys.version.encode()]
        if self.editable:
            parts.append((ROOT / "pyproject.toml").read_bytes())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def is_built(self) -> bool:
        if not self.python.exists() or not self.stamp.exists():
            return False
        return self.stamp.read_text(encoding="utf-8").strip() == self.identity()


ENVIRONMENTS = (
    Environment(".venv", "requirements.txt", True, 3_700_000_000, "Airflow, Spark and Milepost, 1.8 GB on disk"),
    Environment(".venv-s3", "requirements-s3.txt", False, 150_000_000, "the embedded S3 server, 50 MB"),
    Environment(".venv-readers", "requirements-readers.txt", False, 900_000_000, "engines that read tables, 800 MB"),
)


def say(text: str) -> None:
    print(f"[env] {text}", flush=True)


def stop(text: str) -> None:
    print(f"[env] {text}", file=sys.stderr, flush=True)
    sys.exit(8)


def clean_environ() -> dict[str, str]:
    """Return the environment variables without those that redirect Python or pip to another location."""
    unwanted = (
        "PYTHONPATH",
        "PYTHONHOME",
        "PIP_TARGET",
        "PIP_PREFIX",
        "PIP_USER",
        "VIRTUAL_ENV",
        "__PYVENV_LAUNCHER__",
    )
    environ = {name: value for name, value in os.environ.items() if name not in unwanted}
    return environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


def run(*command: object) -> None:
    """Run a step and print its output as it arrives. A failure ends the build with the next step."""
    words = [str(part) for part in command]
    with subprocess.Popen(
        words, env=clean_environ(), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        for line in process.stdout or ():
            if not line.startswith("Requirement already satisfied"):
                print(line, end="", flush=True)
    if process.returncode != 0:
        stop(
            f"`{' '.join(words[1:6])} ...` failed with exit code {process.returncode}; its output is above. What is "
            "built remains: `make env` continues. With a mirror, use pip's own settings (PIP_INDEX_URL, pip.conf)."
        )


def works(python: Path, code: str) -> bool:
    """Return whether an interpreter exists and runs `code` without error."""
    if not python.exists():
        return False
    quiet = subprocess.run(
        [str(python), "-c", code], check=False, env=clean_environ(), capture_output=True, stdin=subprocess.DEVNULL
    )
    return quiet.returncode == 0


def make_venv(environment: Environment) -> None:
    """Create the environment with pip, even if the system's Python has no ensurepip (Debian)."""
    folder = ROOT / environment.folder
    same_python = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
    if not works(environment.python, same_python):
        if folder.exists():
            say(f"{environment.folder} was made by another Python: recreating it")
            shutil.rmtree(folder)
        if works(Path(sys.executable), "import venv, ensurepip"):
            run(sys.executable, "-m", "venv", folder)
        else:
            run(sys.executable, "-m", "venv", "--without-pip", folder)
    if works(environment.python, "import pip"):
        return
    if works(environment.python, "import ensurepip"):
        run(environment.python, "-m", "ensurepip", "--upgrade", "--default-pip")
    elif works(Path(sys.executable), "import pip"):
        run(sys.executable, "-m", "pip", "--python", environment.python, "install", "pip")
    else:
        stop(
            f"{sys.executable} has neither ensurepip nor pip, so it cannot fill an environment. Nothing was installed. "
            "Install them (Debian, Ubuntu: apt install python3-venv), or name another Python: make env PYTHON=..."
        )


def check_disk(missing: list[Environment]) -> None:
    """Stop before the first download if the disk is too small."""
    needed = sum(environment.disk_bytes for environment in missing)
    free = shutil.disk_usage(ROOT).free
    say(f"building needs {needed / 1e9:.1f} GB of disk at its peak, {free / 1e9:.1f} GB are free")
    if free < needed:
        stop(f"{ROOT} has {free / 1e9:.1f} GB free, {needed / 1e9:.1f} GB are needed. Nothing was installed.")


def install_clone(python: Path) -> None:
    """Install the clone itself as editable: one distribution, whose entry points Airflow finds once."""
    options = ("--no-input", "--progress-bar", "off", "--quiet", "--no-deps", "--no-build-isolation")
    run(python, "-m", "pip", "install", *options, "--editable", ".")


def build(environment: Environment) -> None:
    say(f"{environment.folder}: {environment.description}; a few minutes the first time")
    make_venv(environment)
    pip = (environment.python, "-m", "pip", "--no-input")
    run(*pip, "install", "--progress-bar", "off", "--quiet", "-r", environment.requirements)  # else hundreds of lines
    if environment.editable:
        install_clone(environment.python)
    run(*pip, "check")
    if environment.editable:
        run(environment.python, "-m", "scripts.spark.class_archive")
    environment.stamp.write_text(environment.identity() + "\n", encoding="utf-8")
    say(f"{environment.folder} is built")


def main() -> None:
    first, last = SUPPORTED
    if not first <= sys.version_info[:2] <= last:
        stop(f"Python {sys.version.split()[0]} is not supported; 3.11 to 3.13 are.")
    missing = [environment for environment in ENVIRONMENTS if not environment.is_built()]
    if not missing:
        return
    for environment in missing:
        location = (ROOT / environment.folder).resolve()
        if not location.is_relative_to(ROOT.resolve()):
            stop(
                f"{environment.folder} is a link to {location}, which belongs to another clone. Nothing was installed. "
                "Remove the link: this clone then builds its own."
            )
    check_disk(missing)
    for environment in missing:
        build(environment)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
