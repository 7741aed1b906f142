"""A table in Postgres that we cannot write, or not without breaking what others made of it, is refused by name."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.jobspec.job.connections import PostgresAccess
from milepost.sinks.formats.postgres.database import Database as Place
from milepost.sinks.formats.postgres.database_errors import postgres_errors
from milepost_testkit import wording
from milepost_testkit.servers.postgres_server import PostgresServer
from tests.conformance.sinks.contract.case import SCHEMA, rows
from tests.conformance.sinks.formats.postgres_sink import PostgresCase, table_name

FUNCTION = "CREATE OR REPLACE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
CALLS = "ON {} EXECUTE FUNCTION nothing()"
DEFERRED = "ON {} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nothing()"
PARENTS = "CREATE TABLE parents (p text PRIMARY KEY); INSERT INTO parents VALUES ('main');"

SPOILED = {
    "trigger": (f"{FUNCTION} CREATE TRIGGER tg BEFORE INSERT {CALLS}", "trigger tg", "DROP TRIGGER"),
    "deferred trigger": (
        f"{FUNCTION} CREATE CONSTRAINT TRIGGER later AFTER INSERT {DEFERRED}", "trigger later", "DROP TRIGGER",
    ),
    "check": ("ALTER TABLE {} ADD CONSTRAINT few CHECK (v <> 'x')", "the check few", "DROP CONSTRAINT"),
    "foreign key": (
        f"{PARENTS} ALTER TABLE {{}} ADD CONSTRAINT fk FOREIGN KEY (v) REFERENCES parents",
        "the foreign key fk", "DROP CONSTRAINT",
    ),
    "foreign key to it": (
        "DROP TABLE IF EXISTS children; CREATE TABLE children (c bigint CONSTRAINT to_it REFERENCES {})",
        "the foreign key to_it", "ALTER TABLE public.children DROP CONSTRAINT",
    ),
    "unique": ("ALTER TABLE {} ADD CONSTRAINT one UNIQUE (v)", "the unique constraint one", "DROP CONSTRAINT"),
    "unique index": ("CREATE UNIQUE INDEX ui ON {} (v)", "index", "DROP INDEX"),
    "index of an expression": ("CREATE INDEX ie ON {} ((1 / k))", "index", "DROP INDEX"),
    "required": ("ALTER TABLE {} ALTER COLUMN v SET NOT NULL", "requires values in column 'v'", "DROP NOT NULL"),
    "another type": ("ALTER TABLE {} ALTER COLUMN v TYPE varchar(9)", "expected text", "TYPE text"),
    "another column": ("ALTER TABLE {} ADD COLUMN note text", "column 'note' that the sink", 'DROP COLUMN "note"'),
    "generated column": (
        "ALTER TABLE {} ADD COLUMN twice bigint GENERATED ALWAYS AS (k * 2) STORED", "'twice'", 'DROP COLUMN "twice"',
    ),
    "generated in place of ours": (
        "ALTER TABLE {0} DROP COLUMN v; ALTER TABLE {0} ADD COLUMN v text GENERATED ALWAYS AS ('x') STORED",
        "computes its column 'v'", "DROP EXPRESSION",
    ),
    "without a column": ("ALTER TABLE {} DROP COLUMN v", "no longer has column 'v'", "ADD COLUMN"),
    "without the mark": ("ALTER TABLE {} DROP COLUMN _milepost", "no longer has column '_milepost'", "ADD COLUMN"),
    "renamed": ("ALTER TABLE {} RENAME COLUMN v TO w", "no longer has column 'v'", "ADD COLUMN"),
    "without a key": ("ALTER TABLE {} DROP CONSTRAINT \"{pk}\"", "no longer has a primary key", "ADD PRIMARY KEY"),
    "another key": (
        'ALTER TABLE {} DROP CONSTRAINT "{pk}", ADD PRIMARY KEY (k, v)', "another primary key", "ADD PRIMARY KEY",
    ),
    "deferrable key": (
        'ALTER TABLE {} DROP CONSTRAINT "{pk}", ADD PRIMARY KEY (k) DEFERRABLE', "deferrable", "ADD PRIMARY KEY",
    ),
    "unlogged": ("ALTER TABLE {} SET UNLOGGED", "not survive a crash", "SET LOGGED"),
    "rule": ("CREATE RULE ru AS ON INSERT TO {} DO ALSO SELECT 1", "the rule ru", "DROP RULE"),
    "row security": (
        "ALTER TABLE {0} ENABLE ROW LEVEL SECURITY; ALTER TABLE {0} FORCE ROW LEVEL SECURITY",
        "row level security", "DISABLE ROW LEVEL SECURITY",
    ),
    "inherited": ("CREATE TABLE heir_{n} () INHERITS ({})", "is inherited from", "a plain table"),
}  # fmt: skip


class TestRefusals(PostgresCase):
    @pytest.mark.parametrize("name", SPOILED)
    def test_what_others_did_to_the_table_is_named_before_the_commit_point(self, tmp_path: Path, name: str) -> None:
        """TABLES 5: with what to type; the rows are as they were, and after that the next epoch continues."""
        statement, said, typed = SPOILED[name]
        job = self.begin(tmp_path)
        job.go_on(1)
        table = self.table(tmp_path)
        bare = table_name(self.table_store(tmp_path))
        self.database.run_many(statement.format(table, pk=f"{bare}_pkey", n=bare[2:8]))
        with wording.raises(InvalidRequest) as refused:
            job.complete(job.row())
        assert said in refused.value.message and typed in refused.value.hint
        assert self.database.run_as_superuser(f"SELECT count(*) FROM {table}") == [(1,)]

    @pytest.mark.deep
    def test_a_plain_index_and_row_security_for_others_are_no_matter(self, tmp_path: Path) -> None:
        """What breaks nothing of ours may be added."""
        job = self.begin(tmp_path)
        job.go_on(1)
        table = self.table(tmp_path)
        self.database.run(f"CREATE INDEX ON {table} (v)")
        self.database.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        job.go_on(1)
        assert self.published(tmp_path) == [(1, "main"), (2, "main")]

    @pytest.mark.parametrize(
        "statement",
        [
            "CREATE TABLE {} (k bigint PRIMARY KEY, v text)",
            "CREATE TABLE {} (k bigint, v text) PARTITION BY RANGE (k)",
            "CREATE VIEW {} AS SELECT 1 AS k",
            "CREATE MATERIALIZED VIEW {} AS SELECT 1 AS k",
            "CREATE SEQUENCE {}",
        ],
    )
    def test_what_has_the_tables_name_already_is_left_alone(self, tmp_path: Path, statement: str) -> None:
        """TABLES 1.9: also one that another job made and that has no head of ours."""
        self.database.run(statement.format(self.table(tmp_path)))
        job = self.begin(tmp_path)
        sink, staged = job.sink, job.staged(rows((1, "a")))
        with wording.raises(InvalidRequest):
            sink.prepare(staged, None, waits=False)

    @pytest.mark.parametrize(
        "statement",
        [
            "REVOKE UPDATE ON {table} FROM {user}",
            "REVOKE DELETE ON {table} FROM {user}",
            "REVOKE ALL ON milepost_tables FROM {user}",
            "REVOKE TEMPORARY ON DATABASE {db} FROM {user}, PUBLIC",
        ],
    )
    def test_a_revoked_privilege_is_named(self, postgres: PostgresServer, tmp_path: Path, statement: str) -> None:
        """The user owns nothing here: the superuser made it the owner of what it needs, and takes a right away."""
        self.database = own = postgres.new_database()
        job = self.begin(tmp_path)
        job.go_on(1)
        table = self.table(tmp_path)
        for relation in (table, "milepost_tables"):
            own.run_as_superuser(f"ALTER TABLE {relation} OWNER TO postgres")
            own.run_as_superuser(f"GRANT ALL ON {relation} TO {own.user}")
        own.run_as_superuser(f"ALTER DATABASE {own.name} OWNER TO postgres")
        own.run_as_superuser(statement.format(table=table, user=own.user, db=own.name))
        with wording.raises(EnvironmentUnusable) as refused:
            job.complete(job.row())
        assert "GRANT" in refused.value.hint

    def test_a_schema_that_is_not_there_or_not_to_be_written_is_named(
        self, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        self.database = own = postgres.new_database()
        job = self.begin(tmp_path)
        sink, staged = job.sink, job.staged(rows((1, "a")))
        own.run_as_superuser("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        own.run_as_superuser("ALTER SCHEMA public OWNER TO postgres")
        with wording.raises(EnvironmentUnusable):
            sink.prepare(staged, None, waits=False)
        own.run_as_superuser("ALTER SCHEMA public RENAME TO elsewhere")
        with wording.raises(EnvironmentUnusable):
            sink.prepare(staged, None, waits=False)

    @pytest.mark.parametrize(
        ("change", "kind"),
        [
            ({"password": "wrong"}, EnvironmentUnusable),
            ({"name": "nowhere"}, EnvironmentUnusable),
            ({"user": "nobody_here"}, EnvironmentUnusable),
            ({"port": 1}, CheckpointError),
        ],
    )
    def test_a_database_that_does_not_let_us_in_is_named_without_secrets(
        self, tmp_path: Path, change: dict[str, object], kind: type[CheckpointError]
    ) -> None:
        parts = {"name": self.database.name, "user": self.database.user, "password": self.database.password,
                 "port": self.database.port, **change}  # fmt: skip
        wrong = type(self.database)(self.database.server, **parts)  # type: ignore[arg-type]
        form = self.format_through(wrong, self.table_store(tmp_path))
        with wording.raises(kind) as refused:
            form.open()
        assert str(parts["password"]) not in f"{refused.value!r}{refused.value.hint}{refused.value.__cause__!r}"

    @pytest.mark.parametrize(
        "dsn",
        [
            "postgresql://u:hush@h/d?options=-csynchronous_commit%3Doff",
            "postgresql://u:hush@h/d?passfile=/x",
            "service=mine password=hush",
            "postgresql://h",
            "postgresql:///d?user=u",
            "hush hush",
            "mysql://u:hush@h/d",
        ],
    )
    def test_an_address_that_is_not_followed_is_refused_by_name(self, dsn: str) -> None:
        with wording.raises(EnvironmentUnusable) as refused:
            Place("table", lambda: PostgresAccess("the `dsn` of sink table", dsn=dsn)).target()
        assert "hush" not in f"{refused.value!r}{refused.value.hint}{refused.value.__cause__!r}"

    def test_nothing_is_taken_from_the_home_folder_or_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """TABLES 1.15: a password that is not given is not searched for elsewhere."""
        passwords = tmp_path / "passwords"
        passwords.write_text(f"*:*:*:*:{self.database.password}\n")
        passwords.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passwords))
        monkeypatch.setenv("PGPASSWORD", self.database.password)
        bare = f"postgresql://{self.database.user}@127.0.0.1:{self.database.port}/{self.database.name}"
        place = Place("table", lambda: PostgresAccess("the test", dsn=bare))
        with wording.raises(EnvironmentUnusable), place.reading("nothing was asked"):
            pass

    def test_a_value_of_a_row_is_in_no_message(self, tmp_path: Path) -> None:
        """Messages of the server quote values: of ours they have the kind, and no more."""
        job = self.begin(tmp_path)
        done = job.complete(rows((1, "very private")))
        self.database.run(f"ALTER TABLE {self.table(tmp_path)} ADD CONSTRAINT short CHECK (length(v) < 3)")
        with wording.raises(InvalidRequest) as refused:
            job.sink.move(done.target)
        assert "very private" not in f"{refused.value!r}{refused.value.hint}{refused.value.__cause__!r}"
        self.database.run(
            f"ALTER TABLE {self.table(tmp_path)} DROP CONSTRAINT short, ALTER COLUMN v TYPE bigint USING 1"
        )
        with pytest.raises(InvalidRequest) as refused:
            job.sink.move(done.target)
        assert "very private" not in f"{refused.value!r}{refused.value.hint}"
        assert SCHEMA.names == ["k", "v"]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("[Errno -2] Name or service not known", EnvironmentUnusable),
        ("[Errno -5] No address associated with hostname", EnvironmentUnusable),
        ("[Errno -3] Temporary failure in name resolution", StoreUnavailable),
    ],
)
def test_an_unknown_host_is_a_mistake_and_a_failed_lookup_an_outage(said: str, kind: type[CheckpointError]) -> None:
    """A mistake in the spec does not count as a failed epoch, and does not make the job FAILED."""
    error = psycopg.OperationalError(f"failed to resolve host 'db.invalid': {said}")
    with wording.raises(kind), postgres_errors("table", "database d", frozenset(), "not opened"):
        raise error
