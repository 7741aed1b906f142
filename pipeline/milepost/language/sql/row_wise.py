"""Functions that a `sql` operator may not call, and why.

An epoch may run again, at another time and on another machine, and must produce the same rows (I12). So no function may
depend on other rows, on the time, on the machine or on the user.
"""

from __future__ import annotations

from milepost.language.sql.spark_functions import ROW_WISE
from milepost.language.suggestions import nearest

SPARK_AGGREGATES = """
any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine
array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list
collect_set collect_union corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
grouping_id histogram_numeric hll_sketch_agg hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg
max max_by mean measure median min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx
regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg skewness some
std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg theta_sketch_agg theta_union_agg try_avg
try_sum tuple_intersection_agg_double tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance vector_avg vector_sum
""".split()  # noqa: SIM905
"""Aggregate functions of Spark, lower case."""
WINDOW_FUNCTIONS = "counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number".split()  # noqa: SIM905
_TIME_WINDOWS = "session_window window window_time".split()  # noqa: SIM905
_GENERATORS = """
collations explode explode_outer identifier inline inline_outer json_tuple posexplode posexplode_outer
python_worker_logs range sql_keywords stack variant_explode variant_explode_outer
""".split()  # noqa: SIM905
_EXTERNAL = "from_avro from_protobuf schema_of_avro to_avro to_protobuf".split()  # noqa: SIM905
_NONDETERMINISTIC = """
aes_encrypt current_catalog current_database current_date current_path current_schema current_time current_timestamp
current_timezone current_user curdate curtime input_file_block_length input_file_block_start input_file_name
java_method localtime localtimestamp monotonically_increasing_id now rand randn random randstr reflect session_user
shuffle spark_partition_id try_reflect uniform user uuid version
""".split()  # noqa: SIM905

NILADIC_KEYWORDS = frozenset(
    {
        "current_catalog",
        "current_database",
        "current_date",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
    }
)
"""Nondeterministic functions that SQL also accepts without parentheses."""

NONDETERMINISTIC = "`{}` depends on the time or the machine; an epoch that runs again must produce the same rows"

_REASONS = (
    (
        SPARK_AGGREGATES,
        "`{}` is an aggregate; a sql operator is row-wise. Use a `kind: aggregate` or `kind: window` operator",
    ),
    (
        WINDOW_FUNCTIONS,
        "`{}` is a window function; a sql operator is row-wise. Use `kind: over`, or `top` for the first rows",
    ),
    (_TIME_WINDOWS, "`{}` groups rows by time; use a `kind: window` operator"),
    (_GENERATORS, "`{}` is not available in this version"),
    (_EXTERNAL, "`{}` needs a library or a file that is not part of the job; it is not available in this version"),
    (_NONDETERMINISTIC, NONDETERMINISTIC),
)
REFUSED_FUNCTIONS: dict[str, str] = {name: reason.format(name) for names, reason in _REASONS for name in names}
"""Function name, lower case -> why a sql operator may not call it."""

NEED_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Functions that return the current time when they are called without arguments."""


def function_problem(name: str) -> str | None:
    """Return why a sql operator may not call this function (lower case), or None if it may."""
    if name in ROW_WISE:
        return None
    if name in REFUSED_FUNCTIONS:
        return REFUSED_FUNCTIONS[name]
    near = nearest(name, ROW_WISE)
    guess = f'; did you mean "{near}"?' if near else "."
    return f"Spark has no function `{name}`{guess} User-defined functions are not available"
