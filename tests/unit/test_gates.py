"""Each gate of the tree stops what it is there for: a canary, which must fail it, is held to the gate's own settings.

Gates name the package. One that named a package which is no longer there would pass everything, in silence.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import milepost
import milepost.epoch.summary
import milepost.protocol.retention.ancestry
import milepost.state.runs.runs
from milepost.epoch.code_hash import CODE_HASH, hash_package
from milepost_testkit import wording
from milepost_testkit.processes.processes import REPOSITORY, run_python
from scripts.sampling.sampled_mutants import FOLDERS, ONLY_ON_SPARK, mutable_files

PRODUCT = Path(milepost.__file__).parent
LOOSE = "def first(found: list) -> object:\n    return found[0]\n"
"""Right for most of the product; `protocol/` says what a list holds."""

UNTYPED = "def first(found):\n    return found[0]\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("room", "line", "code"),
    [
        ("protocol", "import random", "TID251"),
        ("protocol", "from time import monotonic", "TID251"),
        ("state", "import boto3", "TID253"),
        ("protocol", "import airflow", "TID253"),
        ("cli", "import pyspark", "TID253"),
        ("storage", "import boto3", None),
        ("spark", "import pyspark", None),
        ("airflow", "import airflow", None),
        ("state", "import random", None),
    ],
)
def test_ruff_bans_an_import_outside_of_its_home(room: str, line: str, code: str | None) -> None:
    assert (PRODUCT / room / "__init__.py").exists()
    name = (PRODUCT / room / "canary.py").relative_to(REPOSITORY)
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--select=TID25", "--stdin-filename", name, "-"],
        cwd=REPOSITORY, input=f"{line}\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (found.returncode, code is None or code in found.stdout) == (int(code is not None), True), found.stdout


@pytest.mark.deep
def test_mypy_is_strict_with_the_protocol_and_checks_every_function(tmp_path: Path) -> None:
    strict, untyped, loose = (
        str(Path(module.__file__ or "").relative_to(REPOSITORY))
        for module in (milepost.protocol.retention.ancestry, milepost.state.runs.runs, milepost.epoch.summary)
    )
    found = errors_of_mypy(tmp_path, {strict: LOOSE, untyped: UNTYPED, loose: LOOSE})
    assert any(line.startswith(strict) and "[type-arg]" in line for line in found), found
    assert any(line.startswith(untyped) and "[no-untyped-def]" in line for line in found), found
    assert not any(line.startswith(loose) for line in found), found


def errors_of_mypy(folder: Path, texts: dict[str, str]) -> list[str]:
    """Return what mypy finds in modules of the product if they had these texts."""
    shadows: list[str] = []
    for number, (module, text) in enumerate(texts.items()):
        canary = folder / f"canary{number}.py"
        canary.write_text(text)
        shadows += ["--shadow-file", module, str(canary)]
    command = [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", *shadows, *texts]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    errors = [line for line in ran.stdout.splitlines() if "error:" in line]
    assert bool(errors) == bool(ran.returncode), ran.stdout + ran.stderr
    return errors


@pytest.mark.parametrize("package", [milepost.__name__, "tests", "milepost_testkit"])
def test_a_warning_of_our_own_code_is_an_error(package: str) -> None:
    for name in (package, f"{package}.canary"):
        with pytest.raises(DeprecationWarning):
            exec("warnings.warn('old', DeprecationWarning, 1)", {"__name__": name, "warnings": warnings})


def test_mutants_are_sampled_from_every_folder_that_is_named() -> None:
    files = mutable_files(REPOSITORY, ())
    for folder in FOLDERS:
        assert [file for file in files if (REPOSITORY / file).is_relative_to(PRODUCT / folder)], folder
    assert all((REPOSITORY / file).exists() for file in ONLY_ON_SPARK)


ROOMS = sorted({file.parent.relative_to(PRODUCT) for file in PRODUCT.rglob("*.py")})


@pytest.mark.deep
def test_the_code_that_runs_an_epoch_is_that_of_every_room(tmp_path: Path) -> None:
    """I13: an edit anywhere in the product is another code, and a file that moves is."""
    copy, excerpt = tmp_path / "copy", tmp_path / "excerpt"
    shutil.copytree(PRODUCT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    assert hash_package(copy) == CODE_HASH
    files = [min((copy / room).glob("*.py")).relative_to(copy) for room in ROOMS]
    for file in (*files, Path("cli", "main.py")):
        (excerpt / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(copy / file, excerpt / file)
    hashes = {hash_package(excerpt)}
    for file in files:
        text = (excerpt / file).read_text(encoding="utf-8")
        (excerpt / file).write_text(text + "# edited\n", encoding="utf-8")
        hashes.add(hash_package(excerpt))
    (excerpt / "cli" / "main.py").rename(excerpt / "cli" / "moved.py")
    assert len(hashes | {hash_package(excerpt)}) == len(ROOMS) + 2 > 12


def test_code_that_is_nowhere_has_no_hash(tmp_path: Path) -> None:
    with wording.raises(RuntimeError):
        hash_package(tmp_path)


def test_processes_that_a_test_starts_run_the_code_of_this_tree() -> None:
    """Also in a mutated copy of the tree, where the environment has the original installed."""
    found = run_python("import os, milepost; os.chdir('/'); print(milepost.__file__)")
    assert Path(found.stdout.strip()) == PRODUCT / "__init__.py"


def test_the_package_has_one_name() -> None:
    """Under a second one every class would exist twice, and no `except` would catch what the other raises."""
    found = run_python(f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import pipeline.milepost")
    said = found.stderr.splitlines()[-1]
    assert found.returncode == 1 and "`milepost`" in said and "`pipeline.milepost`" in said
    wording.matches("ImportError", said)
