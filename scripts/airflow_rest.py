"""A small client of Airflow's REST API on loopback, for the demo and the end-to-end tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from scripts.airflow_home import ANSWER_S, LOCK_S

FINISHED_RUN = frozenset({"success", "failed"})
RETRY_S = 3.0 * LOCK_S
"""How long a request is retried. One attempt may wait for the lock as long as Airflow does."""
_REPEATABLE = frozenset({"GET", "PUT", "PATCH", "DELETE"})


class AirflowRest:
    """One login at one Airflow.

    Args:
        url: `http://127.0.0.1:<port>`. login, password: of the simple auth manager.
    """

    def __init__(self, url: str, login: str, password: str) -> None:
        self.url = url
        self._credentials = {"username": login, "password": password}
        # Loopback never goes through the user's proxy.
        self._http = httpx.Client(base_url=url, timeout=ANSWER_S, trust_env=False)
        self._token = ""

    def close(self) -> None:
        self._http.close()

    def is_healthy(self, *components: str) -> bool:
        """Return whether the API answers and reports the named components as healthy."""
        try:
            health = self._http.get("/api/v2/monitor/health", timeout=5.0).json()
        except (httpx.HTTPError, ValueError):
            return False
        return all((health.get(name) or {}).get("status") == "healthy" for name in ("metadatabase", *components))

    def request(self, method: str, path: str, **kwargs: Any) -> Any:
        """Send one request below /api/v2, and renew an expired login once. Raises httpx.HTTPStatusError.

        An idempotent request is retried for some minutes after a 5xx or no answer: Airflow returns a 5xx whenever one
        of its processes has waited too long for SQLite's write lock.
        """
        if method not in _REPEATABLE:
            return self._send(method, path, kwargs)
        return _attempts()(self._send, method, path, kwargs)

    def create(self, path: str, json: dict[str, Any]) -> None:
        """Create an object with a name: a run, a Connection, a pool. Raises httpx.HTTPStatusError.

        Retried as in `request`. A conflict with the object of an earlier attempt is not an error.
        """
        for number, attempt in enumerate(_attempts()):
            with attempt:
                try:
                    self._send("POST", path, {"json": json})
                except httpx.HTTPStatusError as error:
                    if not number or error.response.status_code != httpx.codes.CONFLICT:
                        raise

    def _send(self, method: str, path: str, kwargs: dict[str, Any]) -> Any:
        for attempt in (1, 2):
            answer = self._http.request(method, f"/api/v2{path}", headers=self.authorization(), **kwargs)
            if answer.status_code == httpx.codes.UNAUTHORIZED and attempt == 1:
                self._token = ""
                continue
            if answer.is_error:
                message = f"{method} {path}: {answer.status_code}: {answer.text[:500]}"
                raise httpx.HTTPStatusError(message, request=answer.request, response=answer)
            return answer.json() if answer.content else None
        raise AssertionError("unreachable: the second attempt returns or raises")

    def authorization(self) -> dict[str, str]:
        """Return the header with the login."""
        if not self._token:
            self._token = self._log_in()
        return {"Authorization": f"Bearer {self._token}"}

    def _log_in(self) -> str:
        answer = self._http.post("/auth/token", json=self._credentials)
        answer.raise_for_status()
        return str(answer.json()["access_token"])

    def dags(self) -> dict[str, dict[str, Any]]:
        """Return all DAGs by id."""
        found: dict[str, dict[str, Any]] = {}
        while True:
            query = {"limit": 100, "offset": len(found), "order_by": "dag_id"}
            page = self.request("GET", "/dags", params=query)
            found |= {dag["dag_id"]: dag for dag in page["dags"]}
            if not page["dags"] or len(found) >= page["total_entries"]:
                return found

    def import_errors(self) -> list[dict[str, Any]]:
        return list(self.request("GET", "/importErrors")["import_errors"])

    def set_paused(self, dag_id: str, paused: bool) -> None:
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None, **body: Any) -> str:
        """Trigger a run as the form does. Returns its run id."""
        run_id = f"manual__{datetime.now(UTC).isoformat()}"
        about = {"dag_run_id": run_id, "logical_date": None, "conf": conf or {}} | body
        self.create(f"/dags/{dag_id}/dagRuns", about)
        return str(about["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        return dict(self.request("GET", f"/dags/{dag_id}/dagRuns/{run_id}"))

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG, newest first."""
        answer = self.request("GET", f"/dags/{dag_id}/dagRuns", params={"order_by": "-id", "limit": 100})
        return list(answer["dag_runs"])

    def tasks(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run, including each mapped one."""
        answer = self.request("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 100})
        return list(answer["task_instances"])

    def states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """Return the state by task id; mapped instances are `task[index]`."""
        return {
            task["task_id"] + (f"[{task['map_index']}]" if task["map_index"] >= 0 else ""): task["state"]
            for task in self.tasks(dag_id, run_id)
        }

    def log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1, map_index: int = -1) -> str:
        """Return the log of one try as text, one event per line."""
        answer = self.request(
            "GET",
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}",
            params={"map_index": map_index, "full_content": True},
        )
        content = answer["content"]
        if isinstance(content, str):
            return content
        return "\n".join(_log_line(line) for line in content)

    def clear(self, dag_id: str, run_id: str, *task_ids: str, downstream: bool = True) -> None:
        """Clear tasks of a run, as the UI's button does."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "include_downstream": downstream,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def wait(
        self,
        dag_id: str,
        run_id: str,
        *,
        timeout_s: float,
        seen: Callable[[dict[str, str | None]], None] | None = None,
        check: Callable[[], None] = lambda: None,
        interval_s: float = 0.5,
    ) -> str:
        """Wait until a run is finished. Returns its state. Raises TimeoutError with the states of the tasks.

        Args:
            seen: called with the states of the tasks after each read, for progress.
            check: called before each further read; what it raises ends the wait.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            state = str(self.run(dag_id, run_id)["state"])
            if seen is not None or time.monotonic() > deadline:
                states = self.states(dag_id, run_id)
                if seen is not None:
                    seen(states)
                if state not in FINISHED_RUN and time.monotonic() > deadline:
                    raise TimeoutError(f"{dag_id} {run_id} is {state} after {timeout_s:.0f} s: {states}")
            if state in FINISHED_RUN:
                return state
            check()
            time.sleep(interval_s)


def _attempts() -> Retrying:
    return Retrying(
        retry=retry_if_exception(_is_server_error),
        wait=wait_random_exponential(multiplier=0.2, max=3.0),
        stop=stop_after_delay(RETRY_S),
        reraise=True,
    )


def _is_server_error(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, httpx.TransportError)


def _log_line(line: Any) -> str:
    if not isinstance(line, dict):
        return str(line)
    text = [str(line.get("event", line))]
    for cause in line.get("error_detail") or ():
        text.append(f"{cause.get('exc_type')}: {cause.get('exc_value')}")
        text += [f'  File "{at["filename"]}", line {at["lineno"]}, in {at["name"]}' for at in cause.get("frames") or ()]
    return "\n".join(text)
