"""Read which Milepost job writes a table, and whether it only appends rows."""

from __future__ import annotations

from milepost.errors import StateCorrupt
from milepost.language import check_job_name, check_sink_name
from milepost.protocol.records import ObjectStore
from milepost.sources.landed.contract import Note
from milepost.sources.landed.tables.table_failures import TableFailures
from milepost.tables.records import Reservation, read_reservation


def reservation_at(failures: TableFailures, store: ObjectStore) -> Reservation | None:
    """Return the reservation of a table; None: no job writes it. Raises InvalidRequest: it is damaged.

    Args:
        store: rooted at the table.
    """
    try:
        reservation = read_reservation(store)
    except StateCorrupt as error:
        raise failures.invalid(
            f"is damaged: {error.message.rstrip('.')}", "run `milepost fsck` for the job that writes it"
        ) from error
    if reservation is not None:
        try:
            check_job_name(reservation.owner.job)
            check_sink_name(reservation.owner.sink)
        except ValueError as error:
            raise failures.invalid(f"names an owner that cannot exist: {error}", "correct `path`") from error
    return reservation


def require_appends(failures: TableFailures, reservation: Reservation | None) -> None:
    """Raise InvalidRequest if the job that writes a table replaces and deletes rows."""
    if reservation is not None and reservation.mode == "upsert":
        job = reservation.owner.job
        raise failures.invalid(
            f"has mode: upsert: job {job} replaces and deletes its rows, and a log is only appended to",
            f"let job {job} write the same rows to another sink, with `format: parquet` and `mode: changelog`, and "
            "read that one with `format: milepost`",
        )


def upsert_notes(reservation: Reservation | None) -> tuple[Note, ...]:
    """Return a warning if the job that writes a table replaces and deletes rows. The log may predate that."""
    if reservation is None or reservation.mode != "upsert":
        return ()
    stops = "landing stops at the first row that it replaces or deletes"
    return (Note(f"job {reservation.owner.job} writes it with mode: upsert: {stops}", is_warning=True),)
