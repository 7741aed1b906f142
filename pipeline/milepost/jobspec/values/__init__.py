"""Values in a spec: names, types, durations, patterns, aggregates, expectations, formats."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.values.aggregates import EXACT_DIGITS as EXACT_DIGITS
    from milepost.jobspec.values.aggregates import AggregateCall as AggregateCall
    from milepost.jobspec.values.aggregates import argument_label as argument_label
    from milepost.jobspec.values.docstrings import parse_docstring as parse_docstring
    from milepost.jobspec.values.expectation_combination import Combination as Combination
    from milepost.jobspec.values.expectation_combination import combination_of as combination_of
    from milepost.jobspec.values.expectations import SET_BY_THE_GATE as SET_BY_THE_GATE
    from milepost.jobspec.values.fields import Many as Many
    from milepost.jobspec.values.fields import SpecModel as SpecModel
    from milepost.jobspec.values.fields import Text as Text
    from milepost.jobspec.values.names import check_column_name as check_column_name
    from milepost.jobspec.values.names import check_job_name as check_job_name
    from milepost.jobspec.values.names import check_sink_name as check_sink_name
    from milepost.jobspec.values.names import did_you_mean as did_you_mean
    from milepost.jobspec.values.patterns import hidden_by as hidden_by
    from milepost.jobspec.values.patterns import matcher as matcher
    from milepost.jobspec.values.patterns import static_prefix as static_prefix
    from milepost.jobspec.values.problems import Problem as Problem
    from milepost.jobspec.values.problems import invalid_spec as invalid_spec
    from milepost.jobspec.values.problems import show_path as show_path
    from milepost.jobspec.values.spark_remote import DEFAULT_PORT as DEFAULT_PORT
    from milepost.jobspec.values.spark_remote import REMOTE_VARIABLE as REMOTE_VARIABLE
    from milepost.jobspec.values.spark_remote import TOKEN_VARIABLE as TOKEN_VARIABLE
    from milepost.jobspec.values.spark_remote import SparkRemote as SparkRemote
    from milepost.jobspec.values.spark_settings import ARCHIVES as ARCHIVES
    from milepost.jobspec.values.spark_settings import JAVA_OPTIONS as JAVA_OPTIONS
    from milepost.jobspec.values.spark_settings import PYTHON as PYTHON
    from milepost.jobspec.values.spark_settings import SESSION_PYTHON as SESSION_PYTHON
    from milepost.jobspec.values.spark_settings import SOCKET_FOLDER as SOCKET_FOLDER
    from milepost.jobspec.values.spark_settings import SOCKETS as SOCKETS
    from milepost.jobspec.values.spark_settings import TASK_ATTEMPTS as TASK_ATTEMPTS
    from milepost.jobspec.values.spark_settings import local_cores as local_cores
    from milepost.jobspec.values.spark_settings import session_settings as session_settings
    from milepost.jobspec.values.spark_settings import settings_of as settings_of
    from milepost.jobspec.values.suggestions import nearest as nearest
    from milepost.jobspec.values.types import FLOATS as FLOATS
    from milepost.jobspec.values.types import INTEGERS as INTEGERS
    from milepost.jobspec.values.types import ColumnType as ColumnType
    from milepost.jobspec.values.types import parse_type as parse_type
    from milepost.jobspec.values.types import to_arrow as to_arrow
else:
    __getattr__, __dir__ = lazy_exports(__name__)
