"""State that another version's compiler made: the same SQL is refused, and both recovery steps equal DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from milepost.errors import InvalidRequest
from milepost.jobmaster import Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sql_job import SqlJob
from milepost_testkit.runners.planes import Plane

VIEW = "SELECT *, CASE WHEN quantity > 2 THEN ordered_at + INTERVAL 40 MINUTES ELSE ordered_at END AS due FROM orders"
PAID = """SELECT o.id, p.amount FROM o JOIN payments p ON o.id = p.order_id
    AND p.paid_at BETWEEN o.ordered_at AND o.due"""
LARGE = "SELECT id, amount FROM paid WHERE amount > 10"
SQL = f"""CREATE TEMPORARY VIEW o AS {VIEW};
CREATE STREAMING TABLE paid AS {PAID};
CREATE STREAMING TABLE large AS {LARGE};
CREATE MATERIALIZED VIEW orders_by AS SELECT customer, count(*) AS n FROM orders GROUP BY customer"""
REFUSED = ("paid__join_payments", "sink paid", "sink large")


def recorded_form(spec: Path) -> str:
    """Return the compiled spec with the join as compilers before row bounds had it: without `within`."""
    document = yaml.safe_load(load_job(str(spec)).text)
    steps: dict[str, dict[str, Any]] = {operator["uid"]: operator for operator in document["operators"]}
    join, paid = steps["paid__join_payments"], steps["paid"]
    assert join.pop("within") == ["0s", "due - ordered_at"]
    join["columns"] = {"payments__amount": "right.amount", "payments__paid_at": "right.paid_at"}
    paid["sql"] += "\nWHERE (`payments__paid_at` BETWEEN `ordered_at` AND `due`)"
    return yaml.safe_dump(document, sort_keys=False)


def created(folder: Path, plane: Plane) -> tuple[SqlJob, Any]:
    """Return a job after two epochs of the former steps, now with the spec that has SQL."""
    job, runner = SqlJob(folder, SQL), plane()
    job.database.execute(f"CREATE VIEW o AS {VIEW}; CREATE VIEW paid AS {PAID}")
    (folder / "shop.yaml").write_text(recorded_form(folder / "shop.yaml"))
    for _ in range(2):
        job.run(runner)
    job.write(SQL)
    return job, runner


def check(job: SqlJob) -> None:
    for name, query in {"paid": PAID, "large": LARGE}.items():
        assert job.check(name, query) > 5


@pytest.mark.deep
def test_steps_of_another_compiler_are_refused_and_the_recorded_spec_continues(
    tmp_path: Path, in_process: Plane
) -> None:
    job, runner = created(tmp_path, in_process)
    check(job)
    with pytest.raises(InvalidRequest, match="compiles the same SQL to other steps") as refused:
        job.run(runner)
    rows = {row["uid"]: row for row in refused.value.details["preflight"]}
    assert {uid for uid, row in rows.items() if "recompiled" in row} == {*REFUSED}
    assert rows["orders_by__agg"]["outcome"] == "restored"
    hint = str(refused.value.hint)
    assert "undo the change" not in hint and "milepost show shop 2 --spec" in hint
    shown = milepost("show", tmp_path / "shop.yaml", "2", "--spec").stdout
    (tmp_path / "shop.yaml").write_text(shown.partition("\nSpec\n")[2])
    for _ in range(2):
        job.land()
        job.master.epochs.run(Session.cli(), runner)
        check(job)


def test_a_pinned_statement_keeps_its_steps_while_another_one_is_edited(tmp_path: Path, in_process: Plane) -> None:
    job, runner = created(tmp_path, in_process)
    with pytest.raises(InvalidRequest) as refused:
        job.run(runner)
    assert "as shop.compiled, add `compiled: shop.compiled`" in str(refused.value.hint)
    shown = milepost("show", tmp_path / "shop.yaml", "2", "--spec").stdout
    (tmp_path / "shop.compiled").write_text(shown.partition("\nSpec\n")[2])
    job.write(SQL, compiled="shop.compiled")
    reports: list[Any] = []
    for _ in range(2):
        job.run(runner, tell=reports.append)
        assert {row["outcome"] for report in reports for row in report} <= {"restored"}
        check(job)
    lint = milepost("lint", tmp_path / "shop.yaml", "--json").document()
    warnings = {one["name"]: [each["message"] for each in one["warnings"]] for one in lint["statements"]}
    message = "its steps are those of shop.compiled; without `compiled`, this version compiles others"
    assert warnings == {"o": [], "paid": [message], "large": [], "orders_by": []}
    job.write(SQL.replace("count(*) AS n FROM", "count(*) + 1 AS n FROM"))
    job.run(runner)
    check(job)
    job.check("orders_by", "SELECT customer, count(*) + 1 AS n FROM orders GROUP BY customer")
    job.write(SQL.replace("p.amount FROM", "p.amount + 1 AS amount FROM"))
    steps = {one.uid: one for one in load_job(str(tmp_path / "shop.yaml")).spec.operators}
    assert steps["paid__join_payments"].within is not None, "an edited statement is compiled"


@pytest.mark.deep
def test_a_backfill_rebuilds_the_state_of_other_steps(tmp_path: Path, in_process: Plane) -> None:
    job, runner = created(tmp_path, in_process)
    back_fill(job.master, runner, from_checkpoint=0)
    check(job)
    job.run(runner)
    check(job)


@pytest.mark.deep
def test_an_edit_is_not_attributed_to_the_version(tmp_path: Path, in_process: Plane) -> None:
    job, runner = created(tmp_path, in_process)
    job.write(SQL.replace("INTERVAL 40 MINUTES", "INTERVAL 30 MINUTES"))
    with pytest.raises(InvalidRequest, match="its query changed") as refused:
        job.run(runner)
    assert not any("recompiled" in row for row in refused.value.details["preflight"])
    assert "undo the change" in str(refused.value.hint)
