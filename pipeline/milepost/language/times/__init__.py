"""Times in a spec: durations, calendar units, cron expressions, time zones."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.language.times.any_year import iso_text as iso_text
    from milepost.language.times.any_year import python_rows as python_rows
    from milepost.language.times.any_year import python_values as python_values
    from milepost.language.times.any_year import scalar_text as scalar_text
    from milepost.language.times.any_year import zoned_text as zoned_text
    from milepost.language.times.calendar import MOST_DAYS as MOST_DAYS
    from milepost.language.times.calendar import Calendar as Calendar
    from milepost.language.times.calendar import parse_calendar as parse_calendar
    from milepost.language.times.cron import DAYS_OF_MONTH as DAYS_OF_MONTH
    from milepost.language.times.cron import runs_per_day as runs_per_day
    from milepost.language.times.datetime_pattern import MONTHS as MONTHS
    from milepost.language.times.datetime_pattern import SHORT_MONTHS as SHORT_MONTHS
    from milepost.language.times.datetime_pattern import DatetimePattern as DatetimePattern
    from milepost.language.times.datetime_pattern import accepts_all_of as accepts_all_of
    from milepost.language.times.datetime_pattern import parse_pattern as parse_pattern
    from milepost.language.times.durations import format_duration as format_duration
    from milepost.language.times.durations import format_signed_duration as format_signed_duration
    from milepost.language.times.durations import in_ms as in_ms
    from milepost.language.times.durations import in_us as in_us
    from milepost.language.times.durations import parse_duration as parse_duration
    from milepost.language.times.durations import parse_signed_duration as parse_signed_duration
    from milepost.language.times.time_zones import zone_data as zone_data
    from milepost.language.times.time_zones import zone_digest as zone_digest
    from milepost.language.times.time_zones import zone_of as zone_of
    from milepost.language.times.timestamps import EPOCH as EPOCH
    from milepost.language.times.timestamps import parse_timestamp as parse_timestamp
else:
    __getattr__, __dir__ = lazy_exports(__name__)
