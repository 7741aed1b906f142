"""Random histories of a job and of the landings of its table: the log has the published rows, or the landing stops."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import SourceWentBack
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.open_sources import open_source
from milepost.sinks.staging import small_files
from milepost_testkit import profiles
from milepost_testkit.jobs.landed_table import AFTER, BEFORE, WHOLE, Killed, KilledLog, TableLog
from milepost_testkit.jobs.sparkless.chained_jobs import ChainedJobs, Row

pytestmark = pytest.mark.deep

ONE_SINK = {
    "  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}\n": "",
    "  - {name: changes, input: totals, format: parquet, path: ../lake/changes, mode: changelog}\n": "",
    "operators:\n": "",
    "  - {uid: totals, kind: aggregate, inputs: [files], key: [k], aggregates: {rows: count(*), total: sum(n)}}\n": "",
    "retained: {last: 2}": "retained: {last: 3}",
}

steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.just("roll back"), st.integers(0, 3)),
        st.tuples(st.just("collect"), st.just(0)),
        st.tuples(st.sampled_from([WHOLE, BEFORE, AFTER]), st.sampled_from([1, 1 << 30])),
    ),
    min_size=4,
    max_size=16,
)


class History:
    """Two jobs, and what the log of one has of the table of the other."""

    def __init__(self, folder: Path) -> None:
        self.jobs = ChainedJobs.create(folder / "jobs", up=ONE_SINK)
        self.log = TableLog(self.open)

    def open(self, max_bytes: int) -> Any:
        context = self.jobs.context("sales")
        spec = context.spec.landed["orders"]
        limited = spec.model_copy(update={"land": spec.land.model_copy(update={"max_bytes": max_bytes})})
        return open_source(context, "orders", limited)

    def landed(self) -> list[Row]:
        return [] if self.log.log.newest() is None else [(row["k"], row["n"]) for row in self.log.rows()]

    def roll_back(self, back: int) -> None:
        """Go back to a retained checkpoint, the n-th newest."""
        if self.jobs.shown:
            retained = [int(each.checkpoint_id) for each in self.jobs.context("orders").head().state.checkpoints]
            self.jobs.roll_back(retained[-1 - back % len(retained)])

    def may_be_unknown(self, error: SourceWentBack) -> bool:
        """Return whether the landing may stop although the table begins with what was landed.

        A timeline has left the manifest, or of a part of the table it is not known exactly which checkpoint has it.
        """
        end = self.log.position
        is_exact = len(self.jobs.published.get(end["checkpoint"], ())) == end["rows"]
        return "no longer continues" in error.message and (not is_exact or "it is unknown" in error.message)

    def land(self, fate: str, max_bytes: int) -> None:
        """Land until the end, until the landing is killed, or until it finds that the table went back."""
        killed = KilledLog(self.log.log.store, "orders")
        killed.fate = fate
        before, shown = self.landed(), self.jobs.rows
        try:
            with suppress(Killed):
                Lander(killed, self.open(max_bytes), "job").land()
        except SourceWentBack as error:
            assert self.landed() == before
            assert shown[: len(before)] != before or self.may_be_unknown(error), error
        else:
            assert self.landed() == shown[: len(self.landed())]
            assert fate != WHOLE or self.landed() == shown


@profiles.examples(share=0.2)
@given(history=steps)
def test_the_log_has_the_published_rows_in_order_or_the_landing_stops(history: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder, patch.object(small_files, "GROWTH", 2):
        story = History(Path(folder))
        story.jobs.publish(0)
        for what, number in history:
            if what == "publish":
                story.jobs.publish(*range(number))
            elif what == "roll back":
                story.roll_back(number)
            elif what == "collect":
                story.jobs.collect()
            else:
                story.land(what, number)
        story.land(WHOLE, 1 << 30)
