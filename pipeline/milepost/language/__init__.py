"""Values in a spec: names, types, durations, patterns, aggregates, expectations, formats."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.language.aggregates import BY_EVENT_TIME as BY_EVENT_TIME
    from milepost.language.aggregates import EXACT_DIGITS as EXACT_DIGITS
    from milepost.language.aggregates import AggregateCall as AggregateCall
    from milepost.language.aggregates import argument_label as argument_label
    from milepost.language.aggregates import call_type_problem as call_type_problem
    from milepost.language.aggregates import result_type as result_type
    from milepost.language.aggregates import updates_problem as updates_problem
    from milepost.language.docstrings import parse_docstring as parse_docstring
    from milepost.language.expectation_combination import Combination as Combination
    from milepost.language.expectation_combination import combination_of as combination_of
    from milepost.language.expectations import SET_BY_THE_GATE as SET_BY_THE_GATE
    from milepost.language.expectations import expectation_problem as expectation_problem
    from milepost.language.fields import Aggregate as Aggregate
    from milepost.language.fields import AssetUri as AssetUri
    from milepost.language.fields import ColumnName as ColumnName
    from milepost.language.fields import ConnId as ConnId
    from milepost.language.fields import Cron as Cron
    from milepost.language.fields import Duration as Duration
    from milepost.language.fields import Function as Function
    from milepost.language.fields import JobName as JobName
    from milepost.language.fields import KeyPair as KeyPair
    from milepost.language.fields import Many as Many
    from milepost.language.fields import NodeName as NodeName
    from milepost.language.fields import OrderColumn as OrderColumn
    from milepost.language.fields import PositiveDuration as PositiveDuration
    from milepost.language.fields import PreciseDuration as PreciseDuration
    from milepost.language.fields import QueryName as QueryName
    from milepost.language.fields import QueueUrl as QueueUrl
    from milepost.language.fields import RightColumn as RightColumn
    from milepost.language.fields import SignedDuration as SignedDuration
    from milepost.language.fields import SinkName as SinkName
    from milepost.language.fields import Size as Size
    from milepost.language.fields import SpecModel as SpecModel
    from milepost.language.fields import Start as Start
    from milepost.language.fields import StepName as StepName
    from milepost.language.fields import Text as Text
    from milepost.language.fields import TimeZone as TimeZone
    from milepost.language.fields import Type as Type
    from milepost.language.fields import parse_start as parse_start
    from milepost.language.fields import start_time_ms as start_time_ms
    from milepost.language.names import check_column_name as check_column_name
    from milepost.language.names import check_job_name as check_job_name
    from milepost.language.names import check_node_name as check_node_name
    from milepost.language.names import check_sink_name as check_sink_name
    from milepost.language.names import did_you_mean as did_you_mean
    from milepost.language.patterns import ANY as ANY
    from milepost.language.patterns import Step as Step
    from milepost.language.patterns import can_name as can_name
    from milepost.language.patterns import hidden_by as hidden_by
    from milepost.language.patterns import matcher as matcher
    from milepost.language.patterns import static_prefix as static_prefix
    from milepost.language.problems import Path as Path
    from milepost.language.problems import Problem as Problem
    from milepost.language.problems import invalid_spec as invalid_spec
    from milepost.language.problems import not_available as not_available
    from milepost.language.problems import shortened as shortened
    from milepost.language.problems import show_path as show_path
    from milepost.language.sink_formats import FORMAT_KEYS as FORMAT_KEYS
    from milepost.language.sink_formats import SINK_FORMATS as SINK_FORMATS
    from milepost.language.sink_formats import SinkFormat as SinkFormat
    from milepost.language.source_formats import SOURCE_FORMATS as SOURCE_FORMATS
    from milepost.language.source_formats import SourceFormat as SourceFormat
    from milepost.language.source_formats import find_option as find_option
    from milepost.language.source_formats import records_are_lines as records_are_lines
    from milepost.language.spark_remote import DEFAULT_PORT as DEFAULT_PORT
    from milepost.language.spark_remote import REMOTE_VARIABLE as REMOTE_VARIABLE
    from milepost.language.spark_remote import TOKEN_VARIABLE as TOKEN_VARIABLE
    from milepost.language.spark_remote import SparkRemote as SparkRemote
    from milepost.language.spark_remote import parse_remote as parse_remote
    from milepost.language.spark_remote import remote_problem as remote_problem
    from milepost.language.spark_settings import ARCHIVES as ARCHIVES
    from milepost.language.spark_settings import JAVA_OPTIONS as JAVA_OPTIONS
    from milepost.language.spark_settings import PYTHON as PYTHON
    from milepost.language.spark_settings import SESSION_PYTHON as SESSION_PYTHON
    from milepost.language.spark_settings import SOCKET_FOLDER as SOCKET_FOLDER
    from milepost.language.spark_settings import SOCKETS as SOCKETS
    from milepost.language.spark_settings import TASK_ATTEMPTS as TASK_ATTEMPTS
    from milepost.language.spark_settings import conf_problems as conf_problems
    from milepost.language.spark_settings import local_cores as local_cores
    from milepost.language.spark_settings import session_settings as session_settings
    from milepost.language.spark_settings import settings_of as settings_of
    from milepost.language.suggestions import nearest as nearest
    from milepost.language.types import FLOATS as FLOATS
    from milepost.language.types import INTEGERS as INTEGERS
    from milepost.language.types import ColumnType as ColumnType
    from milepost.language.types import parse_type as parse_type
    from milepost.language.types import to_arrow as to_arrow
else:
    __getattr__, __dir__ = lazy_exports(__name__)
