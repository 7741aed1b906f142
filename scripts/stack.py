"""The demo's servers: embedded S3, Spark Connect and Airflow, on loopback; all their data is below `.milepost/`.

`python -m scripts.stack up|down|status`. Each started process is recorded in `.milepost/stack.json` before anything
waits for it, so that `down` always finds it. A running stack is reused.
"""

from __future__ import annotations

import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from milepost.language.spark_remote import REMOTE_VARIABLE, TOKEN_VARIABLE
from scripts import airflow_home, processes
from scripts.airflow_rest import AirflowRest
from scripts.processes import ROOT, StackError, Started

BUCKETS = ("landing", "milepost", "lake")
AIRFLOW_SERVICES: dict[str, tuple[str, ...]] = {
    "api-server": ("api-server", "--host", "127.0.0.1"),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
BOOT_S = 240.0
SPARK = "spark-connect"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Each epoch starts a JVM that lives for seconds: compiling for peak speed would take longer than the epoch."""

Say = Callable[[str], None]


@dataclass
class Stack:
    """One set of servers, and the folder with all of their state.

    Attributes:
        folder: location of `stack.json`, data and logs.
        dags, plugins, config: what Airflow loads, and the folder of the job specs.
        services: which of Airflow's processes run.
        settings: Airflow options that override our own: section -> option -> value.
        environ: further variables of every process.
        spark: settings of the Spark Connect server that override our own.
        marker: carried by every process of this stack.
    """

    folder: Path
    dags: Path = ROOT / "dags"
    plugins: Path = ROOT / "plugins"
    config: Path = ROOT / "config"
    services: tuple[str, ...] = tuple(AIRFLOW_SERVICES)
    settings: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    marker: str = ""
    started: dict[str, Started] = field(default_factory=dict)
    say: Say = print

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._read()

    @property
    def record(self) -> Path:
        return self.folder / "stack.json"

    @property
    def home(self) -> Path:
        """AIRFLOW_HOME."""
        return self.folder / "airflow"

    @property
    def s3_url(self) -> str:
        return f"http://127.0.0.1:{self.started['s3'].port}"

    @property
    def spark_url(self) -> str:
        """Value of `spark.remote` for the server of this stack."""
        return f"sc://localhost:{self.started[SPARK].port}"

    @property
    def spark_token(self) -> str:
        from milepost.spark.driver.engines import connect_server

        return connect_server.connect_token(self.folder / "spark-token")

    @property
    def airflow_url(self) -> str:
        return f"http://127.0.0.1:{self.started['api-server'].port}"

    def rest(self, login: str = airflow_home.LOGIN) -> AirflowRest:
        return AirflowRest(self.airflow_url, login, airflow_home.password(self.home, login))

    def process_environ(self) -> dict[str, str]:
        """Return the environment variables of the processes of the stack, and of commands that use it."""
        extra = {
            "AIRFLOW_HOME": str(self.home),
            "MILEPOST_CONFIG": str(self.config),
            "PYSPARK_PYTHON": processes.python(),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_LOCAL_IP": processes.LOOPBACK,
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
            "SPARK_SUBMIT_OPTS": QUICK_JVM,
            "AWS_ACCESS_KEY_ID": "milepost",
            "AWS_SECRET_ACCESS_KEY": "milepost-on-loopback",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        if "s3" in self.started:
            extra["MILEPOST_S3_ENDPOINT"] = self.s3_url
        if SPARK in self.started:
            extra |= {REMOTE_VARIABLE: self.spark_url, TOKEN_VARIABLE: self.spark_token}
        return processes.clean_environ(extra | dict(self.environ))

    def is_alive(self, *names: str) -> bool:
        return all(name in self.started and self.started[name].process() is not None for name in names)

    def start_s3(self) -> None:
        """Start the S3 server, with its data in the folder, and create the buckets."""
        if not self.is_alive("s3"):
            self.say("starting the embedded S3 server")
            # Only one process may own the data, so processes of an earlier, partly dead stack are stopped first.
            self.stop()
            self._start_s3()
        create_buckets(self.s3_url, self.process_environ())

    def _start_s3(self) -> None:
        python = ROOT / ".venv-s3" / "bin" / "python"
        if not python.exists():
            raise StackError(f"{python} does not exist: run `make env` first")
        port = processes.free_port(self._last_port("s3"))
        environ = self.process_environ() | {
            "BIND_HOST": processes.LOOPBACK,
            "GATEWAY_PORT": str(port),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(self.folder / "s3"),
            "SERVICES": "s3",
        }
        self._start("s3", [str(python), "-m", "ministack"], environ, port)
        server = self.started["s3"]
        processes.wait_until(lambda: processes.is_listening(port), of=[server], timeout_s=60, what="the S3 server")

    def start_spark(self) -> None:
        """Start the Spark Connect server. `wait_for_spark` waits until it answers.

        Airflow's tasks get its address when Airflow starts. If the address must change, Airflow is stopped.
        """
        if self.is_alive(SPARK):
            return
        from milepost.spark.driver.engines import connect_server

        self.say("starting the Spark Connect server")
        if SPARK in self.started:
            self.stop(SPARK)
        before = self._last_port(SPARK)
        port = processes.free_port(before)
        if port != before and any(name in self.started for name in self.services):
            self.stop(*(name for name in self.services if name in self.started))
        properties = self.folder / "spark.properties"
        connect_server.write_properties(properties, port, self.spark)
        environ = self.process_environ() | {TOKEN_VARIABLE: self.spark_token, "JAVA_HOME": connect_server.java_home()}
        self._start(SPARK, connect_server.command(properties), environ, port)

    def wait_for_spark(self) -> None:
        """Wait until the Spark Connect server listens."""
        server = self.started[SPARK]
        assert server.port is not None
        port = server.port
        processes.wait_until(
            lambda: processes.is_listening(port), of=[server], timeout_s=BOOT_S, what="the Spark Connect server"
        )

    def start_airflow(self) -> None:
        """Migrate Airflow's database, start its processes, and wait until they are healthy."""
        if self.is_alive(*self.services):
            self.say(f"Airflow is already running at {self.airflow_url}")
            return
        if remains := [name for name in self.started if name not in ("s3", SPARK)]:
            self.stop(*remains)
        port = processes.free_port(self._last_port("api-server"))
        airflow_home.write_home(self.home, dags=self.dags, plugins=self.plugins, port=port, settings=self.settings)
        self.say("preparing Airflow's database")
        self._migrate()
        self.say("starting Airflow (half a minute)")
        for name in self.services:
            self.start_service(name, port if name == "api-server" else None)
        self.wait_for_airflow()

    def start_service(self, name: str, port: int | None = None, label: str = "") -> None:
        """Start one of Airflow's processes in the existing home.

        Args:
            port: of a server, or None. label: its name in `started` if there are two of one kind.
        """
        command = [processes.python(), "-m", "airflow", *AIRFLOW_SERVICES[name]]
        command += ["--port", str(port)] if port else []
        self._start(label or name, command, self.process_environ(), port)

    def wait_for_airflow(self) -> None:
        """Wait until API server, scheduler and DAG processor are healthy."""
        rest = self.rest()
        wanted = [name.replace("-", "_") for name in self.services if name != "api-server"]
        try:
            processes.wait_until(
                lambda: rest.is_healthy(*wanted),
                of=[self.started[name] for name in self.services],
                timeout_s=BOOT_S,
                what="Airflow",
                interval_s=0.5,
            )
        finally:
            rest.close()

    def _migrate(self) -> None:
        log = self.folder / "logs" / "db-migrate.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            result = subprocess.run(
                [processes.python(), "-m", "airflow", "db", "migrate"],
                check=False,
                env=self.process_environ(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                umask=0o077,
            )
        if result.returncode != 0:
            raise StackError(f"`airflow db migrate` ended with exit code {result.returncode}; see {log}")

    def stop(self, *names: str) -> None:
        """Stop the named services, or the whole stack. Raises StackError if a process does not end."""
        chosen = [self.started[name] for name in names] if names else list(self.started.values())
        left = processes.stop(chosen, self.marker, names or None)
        if left:
            raise StackError(f"still running after TERM and KILL: {', '.join(left)}")
        for started in chosen:
            self.started.pop(started.name, None)
        self._write()

    def _start(self, name: str, command: list[str], environ: Mapping[str, str], port: int | None) -> None:
        log = self.folder / "logs" / f"{name}.log"
        # Between fork and this write, only the marker identifies the process. It is already on disk.
        self.started[name] = processes.start(
            name, command, stack=self.marker, environ=environ, cwd=self.folder, log=log, port=port
        )
        self._write()

    def _last_port(self, name: str) -> int | None:
        try:
            ports = json.loads(self.record.read_text(encoding="utf-8"))["ports"]
        except (OSError, ValueError, KeyError):
            return None
        port = ports.get(name)
        return int(port) if port else None

    def _read(self) -> None:
        if self.record.exists():
            known = json.loads(self.record.read_text(encoding="utf-8"))
            self.marker = known["marker"]
            self.started = {name: Started(**about) for name, about in known["processes"].items()}
        else:
            self.marker = secrets.token_hex(16)
            self._write()

    def _write(self) -> None:
        ports = {name: started.port for name, started in self.started.items() if started.port}
        before = json.loads(self.record.read_text(encoding="utf-8"))["ports"] if self.record.exists() else {}
        known = {
            "marker": self.marker,
            "ports": before | ports,
            "processes": {name: dataclasses.asdict(started) for name, started in self.started.items()},
        }
        temporary = self.record.with_suffix(".tmp")
        temporary.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
        temporary.chmod(0o600)
        temporary.replace(self.record)


def create_buckets(endpoint: str, environ: Mapping[str, str]) -> None:
    """Create the missing buckets of the demo."""
    import boto3
    from botocore.config import Config

    client = boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=environ["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=environ["AWS_SECRET_ACCESS_KEY"],
        config=Config(proxies={}, s3={"addressing_style": "path"}),
    )
    existing = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in BUCKETS:
        if bucket not in existing:
            client.create_bucket(Bucket=bucket)


def demo_stack() -> Stack:
    """Return the stack of this clone."""
    return Stack(ROOT / ".milepost")


def down() -> int:
    """Stop the stack of this clone. Returns exit code 0, even if nothing was running."""
    if not (ROOT / ".milepost" / "stack.json").exists():
        print("nothing is running")
        return 0
    # A second Ctrl-C must not leave half of the processes behind.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stack = demo_stack()
        names = [name for name, started in stack.started.items() if started.process() is not None]
        stack.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    print(f"stopped {', '.join(names)}" if names else "nothing is running")
    return 0


def status() -> int:
    """Print the processes and their ports. Returns exit code 1 if one of them has ended, otherwise 0."""
    if not (ROOT / ".milepost" / "stack.json").exists():
        print("nothing is running")
        return 0
    stack = demo_stack()
    for name, started in stack.started.items():
        alive = "running" if started.process() is not None else "ended"
        scheme = "sc://localhost" if name == SPARK else "http://127.0.0.1"
        where = f"  {scheme}:{started.port}" if started.port else ""
        print(f"{name:14} pid {started.pid:<8} {alive}{where}")
    if not stack.started:
        print("nothing is running")
    return 0 if stack.is_alive(*stack.started) else 1


def up() -> int:
    stack = demo_stack()
    stack.start_s3()
    stack.start_spark()
    stack.start_airflow()
    stack.wait_for_spark()
    print(f"S3 {stack.s3_url}, Spark Connect {stack.spark_url}, Airflow {stack.airflow_url}")
    return 0


def main(arguments: list[str]) -> int:
    commands = {"up": up, "down": down, "status": status}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(f"usage: python -m scripts.stack {'|'.join(commands)}", file=sys.stderr)
        return 2
    try:
        return commands[arguments[0]]()
    except StackError as error:
        print(error, file=sys.stderr)
        return 8


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
