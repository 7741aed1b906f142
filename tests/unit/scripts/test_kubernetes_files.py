"""The files for Kubernetes are not run here; this checks what can be checked without a cluster."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from milepost.jobspec.load.document import read_document
from milepost.jobspec.load.validation import validate_spec
from milepost.language.spark_remote import DEFAULT_PORT, TOKEN_VARIABLE
from milepost.spark.driver.engines.connect_server import CLASS, SETTINGS
from milepost.spark.driver.executors.probe import FOR_S3, LIBRARIES
from milepost_testkit.processes.processes import REPOSITORY

FOLDER = REPOSITORY / "config" / "kubernetes"
FILES = sorted(FOLDER.iterdir())
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def documents(name: str) -> dict[str, Any]:
    """The documents of a file by their kind."""
    found = YAML(typ="safe").load_all((FOLDER / name).read_text("utf-8"))
    return {document["kind"]: document for document in found}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_says_first_that_it_was_not_run(file: Path) -> None:
    assert file.read_text("utf-8").startswith("# NOT RUN HERE: ")


def test_the_image_has_what_tasks_import_in_the_ranges_of_the_project_and_its_pinned_spark() -> None:
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    installed = [Requirement(one) for one in re.findall(r'"((?:\w+)[<>=][^"]*)"', text)]
    extras = PROJECT["optional-dependencies"]
    ranges = {
        one.name: one.specifier for one in map(Requirement, [*PROJECT["dependencies"], *extras["spark"], *extras["s3"]])
    }
    assert {one.name: one.specifier for one in installed} == {name: ranges[name] for name in (*LIBRARIES, *FOR_S3)}
    (pinned,) = re.findall(r"^pyspark\[connect\]==(\S+)", (REPOSITORY / "requirements.txt").read_text("utf-8"), re.M)
    assert f"FROM apache/spark:{pinned}\n" in text


def test_the_connect_server_is_started_as_ours_is_and_requires_a_token() -> None:
    found = documents("spark-connect.yaml")
    (container,) = found["Deployment"]["spec"]["template"]["spec"]["containers"]
    command = container["command"]
    settings = dict(word.removeprefix("--conf=").split("=", 1) for word in command if word.startswith("--conf="))
    assert f"--class={CLASS}" in command
    assert settings["spark.connect.grpc.binding.port"] == str(DEFAULT_PORT)
    timeout = "spark.connect.execute.manager.detachedTimeout"
    assert settings[timeout] == SETTINGS[timeout]
    assert settings["spark.kubernetes.container.image"] == container["image"]
    (token,) = [one for one in container["env"] if one["name"] == TOKEN_VARIABLE]
    assert set(token["valueFrom"]) == {"secretKeyRef"}, "no token stands in a manifest"
    assert found["Ingress"]["spec"]["tls"], "a token goes through TLS alone"


def test_the_job_of_the_manifest_is_a_valid_spec_and_its_account_is_the_one_that_may() -> None:
    found = documents("epochs.yaml")
    ((name, text),) = found["ConfigMap"]["data"].items()
    _, problems = validate_spec(read_document(text).value)
    assert not problems
    pod = found["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"][-1] == f"/jobs/{name}"
    account = documents("access.yaml")["ServiceAccount"]["metadata"]["name"]
    server = documents("spark-connect.yaml")["Deployment"]["spec"]["template"]["spec"]
    assert {pod["serviceAccountName"], server["serviceAccountName"]} == {account}
