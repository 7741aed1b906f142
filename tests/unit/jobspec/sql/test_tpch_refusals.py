"""The queries of TPC-H whose published text is refused, each at its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.errors import InvalidRequest
from milepost.jobspec.load.load import load_job
from milepost_testkit.tpch.job import EXAMPLE, TpchJob, statements

PUBLISHED = statements((Path(__file__).parent / "tpch" / "refused.sql").read_text())
QUERY = "a query in an expression is not available in this version"
REFUSED = {
    "q02": f"12:5: {QUERY}",
    "q11": f"7:3: {QUERY}",
    "q15": f"4:52: {QUERY}",
    "q16": "9:7: NOT IN is not available in this version: a null on either side would decide",
    "q17": f"7:21: {QUERY}",
    "q20": f"9:9: {QUERY}",
    "q22": f"8:7: {QUERY}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_published_query_with_a_query_in_an_expression_is_refused(name: str, tmp_path: Path) -> None:
    views = {"revenue": PUBLISHED["revenue"]} if name == "q15" else {}
    job = TpchJob(tmp_path, {name: PUBLISHED[name], **views})
    with pytest.raises(InvalidRequest) as refused:
        _ = job.master
    assert REFUSED[name] in str(refused.value)
    assert "(1 problem)" in str(refused.value)


@pytest.mark.long
def test_the_example_compiles_with_a_table_of_each_query() -> None:
    job = load_job(str(EXAMPLE / "tpch.yaml"))
    assert sorted(sink.name for sink in job.spec.sinks) == [f"q{number:02}" for number in range(1, 23)]
    assert [*sorted(REFUSED), "revenue"] == sorted(PUBLISHED)
