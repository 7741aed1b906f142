"""The text of a page is what a reader sees of the parts that a test selects."""

from __future__ import annotations

import pytest

from milepost_testkit.airflow.page_text import page_text

PAGE = """
<header><h1>small</h1></header>
<main id="main">
<div class="banner bad"><strong><svg><title>drawn</title></svg>Failed</strong>
<p>Object <code>a.csv</code>,
   line&nbsp;2 &lt;b&gt;.</p></div>
<table><tr><th>Id</th><th>Status</th></tr><tr><td>1</td><td>live<div>main</div></td></tr></table>
<ul><li><a href="/x">Run</a><span>reads</span></li></ul>
<script>let hidden</script>
</main>
"""


@pytest.mark.parametrize(
    ("selectors", "text"),
    [
        (["h1"], "small"),
        ([".banner"], "Failed\nObject a.csv, line 2 <b>."),
        (["div.bad", "p"], "Failed\nObject a.csv, line 2 <b>."),
        (["p", "h1"], "small\nObject a.csv, line 2 <b>."),
        (["title"], "drawn"),
        (["tr"], "Id | Status\n1 | live main"),
        (["#main"], "Failed\nObject a.csv, line 2 <b>.\nId | Status\n1 | live main\nRun reads"),
        ([".missing"], ""),
    ],
)
def test_a_block_is_a_line_and_a_row_of_a_table_too(selectors: list[str], text: str) -> None:
    assert page_text(PAGE, *selectors) == text
