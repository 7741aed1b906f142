"""An unknown name is answered with a known one of the same meaning, or none, but never with its opposite."""

from __future__ import annotations

import pytest

from milepost.cli.main import app
from milepost.language.aggregates import ARGUMENTS, parse_aggregate
from milepost.language.expectations import ARGUMENTS as EXPECTATIONS
from milepost.language.sql.spark_functions import ROW_WISE
from milepost.language.suggestions import nearest
from milepost_testkit import wording

SOME_FUNCTIONS = sorted(ROW_WISE)[::7]
COMMANDS = [command.name or "" for command in app.registered_commands]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("expect_column_values_to_be_not_null", "expect_column_values_to_not_be_null"),
        ("expect_column_values_not_null", "expect_column_values_to_not_be_null"),
        ("expect_column_values_not_to_be_null", "expect_column_values_to_not_be_null"),
        ("expect_column_values_to_be_non_null", "expect_column_values_to_not_be_null"),
        ("expect_column_values_to_be_nul", "expect_column_values_to_be_null"),
        ("expect_column_values_to_be_not_in_set", "expect_column_values_to_not_be_in_set"),
        ("expect_column_values_to_be_betwixt", "expect_column_values_to_be_between"),
        ("expect_column_values_to_be_inset", "expect_column_values_to_be_in_set"),
        ("expect_column_values_to_not_be_unique", None),
        ("expect_column_values_to_not_be_between", None),
        ("expect_column_minimum_to_be_between", "expect_column_min_to_be_between"),
        ("expect_column_maxi_to_be_between", "expect_column_max_to_be_between"),
    ],
)
def test_the_intended_expectation_is_suggested(name: str, meant: str | None) -> None:
    assert nearest(name, EXPECTATIONS) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [("mim", "min"), ("cnt", "count"), ("median", None), ("man", None), ("argmax", "arg_max")],
)
def test_an_aggregate_is_suggested_only_if_it_is_nearly_equal(name: str, meant: str | None) -> None:
    assert nearest(name, ARGUMENTS) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("is_not_null", "isnotnull"),
        ("is_null", "isnull"),
        ("isnotnul", "isnotnull"),
        ("not_null", "isnotnull"),
        ("is_nan", "isnan"),
        ("encode_url", "url_encode"),
        ("start_with", "startswith"),
        ("endwith", "endswith"),
        ("Luhn_Chek", "luhn_check"),
        ("array_not_contains", None),
        ("descending", None),
    ],
)
def test_the_intended_function_is_suggested(name: str, meant: str | None) -> None:
    assert nearest(name, ROW_WISE) == meant


NEGATED = ("not_{}", "{}_not", "non_{}", "is_not_{}")


@pytest.mark.deep
@pytest.mark.parametrize("known", [[*EXPECTATIONS], SOME_FUNCTIONS, COMMANDS], ids=["checks", "functions", "commands"])
def test_the_negation_of_a_name_is_never_suggested(known: list[str]) -> None:
    for name in known:
        negated = any(word in name for word in ("not", "null", "zero"))  # `ifnull` and `nvl` are no negations
        for form in () if negated else NEGATED:
            assert nearest(form.format(name), known) != name


@pytest.mark.deep
def test_a_known_name_in_any_case_is_its_own_suggestion() -> None:
    for known in (EXPECTATIONS, SOME_FUNCTIONS, ARGUMENTS, COMMANDS):
        assert [nearest(name.upper(), known) for name in known] == list(known)


@pytest.mark.parametrize(("function", "suggested"), [("median", ""), ("mean", '"avg"'), ("mni", '"min"'), ("xyz", "")])
def test_an_unknown_aggregate_is_refused_with_a_suggestion(function: str, suggested: str) -> None:
    with wording.raises(ValueError) as refused:
        parse_aggregate(f"{function}(x)")
    assert suggested in str(refused.value)
