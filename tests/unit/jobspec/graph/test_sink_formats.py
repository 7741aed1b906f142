"""The table of sink formats agrees with the spec, with `migrate-table` and with the formats that can be opened."""

from __future__ import annotations

from typing import get_args

from milepost.cli.switching.migrate import MigratedFormat
from milepost.extras import EXTRAS
from milepost.jobspec.job import SinkSpec
from milepost.language import FORMAT_KEYS, SINK_FORMATS
from milepost.sinks.build import FORMATS


def test_each_format_of_a_spec_is_declared_and_can_be_opened() -> None:
    named = set(get_args(SinkSpec.model_fields["format"].annotation))
    assert named == SINK_FORMATS.keys() == FORMATS.keys()
    assert {format_.name for format_ in SINK_FORMATS.values() if not format_.is_managed} <= EXTRAS.keys()


def test_each_key_of_a_format_is_a_key_of_the_spec_that_may_be_left_out() -> None:
    refused = {key for format_ in SINK_FORMATS.values() for key, _ in format_.refused_keys}
    assert {*FORMAT_KEYS, *refused} <= SinkSpec.model_fields.keys()
    assert not any(SinkSpec.model_fields[key].is_required() for key in FORMAT_KEYS)


def test_a_table_can_be_migrated_to_each_format_of_the_command() -> None:
    targets = {
        target.name for target in SINK_FORMATS.values() if any(f.can_migrate_to(target) for f in SINK_FORMATS.values())
    }
    assert targets == {format_.value for format_ in MigratedFormat}
