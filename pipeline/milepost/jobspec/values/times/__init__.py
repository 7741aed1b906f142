"""Times in a spec: durations, calendar units, cron expressions, time zones."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.values.times.any_year import iso_text as iso_text
    from milepost.jobspec.values.times.any_year import python_rows as python_rows
    from milepost.jobspec.values.times.any_year import python_values as python_values
    from milepost.jobspec.values.times.any_year import scalar_text as scalar_text
    from milepost.jobspec.values.times.any_year import zoned_text as zoned_text
    from milepost.jobspec.values.times.calendar import Calendar as Calendar
    from milepost.jobspec.values.times.cron import DAYS_OF_MONTH as DAYS_OF_MONTH
    from milepost.jobspec.values.times.cron import runs_per_day as runs_per_day
    from milepost.jobspec.values.times.datetime_pattern import MONTHS as MONTHS
    from milepost.jobspec.values.times.datetime_pattern import SHORT_MONTHS as SHORT_MONTHS
    from milepost.jobspec.values.times.datetime_pattern import DatetimePattern as DatetimePattern
    from milepost.jobspec.values.times.datetime_pattern import parse_pattern as parse_pattern
    from milepost.jobspec.values.times.durations import format_duration as format_duration
    from milepost.jobspec.values.times.durations import in_ms as in_ms
    from milepost.jobspec.values.times.durations import in_us as in_us
    from milepost.jobspec.values.times.durations import parse_duration as parse_duration
    from milepost.jobspec.values.times.time_zones import zone_data as zone_data
    from milepost.jobspec.values.times.time_zones import zone_of as zone_of
    from milepost.jobspec.values.times.timestamps import EPOCH as EPOCH
    from milepost.jobspec.values.times.timestamps import parse_timestamp as parse_timestamp
else:
    __getattr__, __dir__ = lazy_exports(__name__)
