"""DAGs in a database of Airflow's own, written there as its DAG processor writes them."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import airflow
import pytest
from airflow.sdk import DAG
from packaging.version import Version

from milepost.jobspec.load.load import LoadedJob

OPEN, CLOSED = "open", "closed"
"""Two bundles of DAGs, each of the team of the same name. A test's user is in the first team only."""


def keep_dags(patch: pytest.MonkeyPatch, *dags: DAG, readable: Iterable[str] | None = None) -> None:
    """Give Airflow's server a new database with these DAGs, and no others.

    Args:
        readable: ids of the DAGs of the team `OPEN`; the others are of the team `CLOSED`. All by default.
    """
    from airflow import settings
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session
    from sqlalchemy import create_engine
    from sqlalchemy.orm import scoped_session, sessionmaker

    database = tempfile.mkdtemp(dir=os.environ["AIRFLOW_HOME"]) + "/airflow.db"
    shutil.copy(_empty_database(), database)
    make = sessionmaker(bind=create_engine(f"sqlite:///{database}"), expire_on_commit=False, autoflush=False)
    patch.setattr(settings, "NonScopedSession", make)
    patch.setattr(settings, "Session", scoped_session(make))
    _forget_teams()
    allowed = {dag.dag_id for dag in dags} if readable is None else set(readable)
    with create_session() as session, contextlib.redirect_stdout(io.StringIO()):  # it reports each DAG that it writes
        for bundle in (OPEN, CLOSED):
            its = [dag for dag in dags if (dag.dag_id in allowed) == (bundle == OPEN)]
            written = [LazyDeserializedDAG(data=_serialized(dag)) for dag in its]
            errors: dict[tuple[str, str], str] = {}
            update_dag_parsing_results_in_db(bundle, None, written, errors, None, set(), session)
            assert not errors, errors


def new_team(name: str, bundle: Any) -> Any:
    """Return a team with one bundle of DAGs. Before Airflow 3.2 a team also has an id."""
    from airflow.models.team import Team

    more = {"id": uuid.uuid4()} if Version(airflow.__version__) < Version("3.2") else {}
    return Team(name=name, dag_bundles=[bundle], **more)


def _forget_teams() -> None:
    """Clear Airflow's cache of the teams of DAGs, which it has since 3.3."""
    if Version(airflow.__version__) >= Version("3.3"):
        from airflow.models.dag import clear_team_name_cache

        clear_team_name_cache()


def _serialized(dag: DAG) -> dict[str, Any]:
    if Version(airflow.__version__) >= Version("3.2"):
        from airflow.serialization.serialized_objects import DagSerialization as Serialization
    else:
        from airflow.serialization.serialized_objects import SerializedDAG as Serialization
    found: dict[str, Any] = Serialization.to_dict(dag)
    return found


@functools.cache
def _empty_database() -> Path:
    """Return a database with all of Airflow's tables, the two teams and their bundles."""
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from airflow.models.dagbundle import DagBundleModel
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    import_all_models()
    file = Path(tempfile.mkdtemp(dir=os.environ["AIRFLOW_HOME"])) / "empty.db"
    engine = create_engine(f"sqlite:///{file}")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(new_team(name, DagBundleModel(name=name)) for name in (OPEN, CLOSED))
        session.commit()
    engine.dispose()
    return file


def jobs_on_the_page(dag_id: str) -> dict[str, LoadedJob]:
    """The jobs that the Checkpoints page finds of a DAG; with it, Airflow's server is imported."""
    from milepost.airflow.page.jobs.dag_jobs import jobs_of_dag

    return jobs_of_dag(dag_id)
