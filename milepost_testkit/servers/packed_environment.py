"""A virtual environment packed for `spark.archives`: what tasks import, and no Milepost."""

from __future__ import annotations

import sys
import tarfile
import venv
from pathlib import Path

LIBRARIES = (
    "annotated_types", "boto3", "botocore", "certifi", "dateutil", "jmespath", "numpy", "numpy.libs", "pandas",
    "psutil", "pyarrow", "pydantic", "pydantic_core", "pytz", "s3transfer", "six.py", "tenacity",
    "typing_extensions.py", "typing_inspection", "urllib3",
)  # fmt: skip
"""All that an epoch's tasks import, as site-packages has it, but for PySpark, which executors have."""

NOT_RUN = {"__pycache__", "tests", "include"}


def packed_environment(folder: Path) -> Path:
    """Return an archive of an environment with the libraries of this one; its interpreter is the machine's."""
    made = folder / "environment"
    venv.create(made, with_pip=False, symlinks=True)
    (own,) = made.glob("lib/python*/site-packages")
    (installed,) = [Path(place) for place in sys.path if Path(place).name == "site-packages"]
    archive = folder / "environment.tar.gz"  # of all that Spark unpacks, this alone may have links and programs
    with tarfile.open(archive, "w:gz", compresslevel=0) as packed:
        for part in made.iterdir():
            packed.add(part, part.name)
        for name in LIBRARIES:
            packed.add(installed / name, str(own.relative_to(made) / name), filter=_that_runs)
            for metadata in installed.glob(f"{name.replace('.py', '')}-*.dist-info"):
                packed.add(metadata, str(own.relative_to(made) / metadata.name))
    return archive


def _that_runs(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if NOT_RUN & set(Path(member.name).parts) else member
