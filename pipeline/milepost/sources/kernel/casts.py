"""Decide which types of a file may be read as a declared type."""

from __future__ import annotations

import pyarrow as pa


def may_cast(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a value keeps its meaning when cast from the file's type, if it fits at all."""
    t = pa.types
    if t.is_dictionary(stored):
        stored = stored.value_type
    if stored == declared:
        return True
    if t.is_timestamp(stored) and t.is_timestamp(declared):
        return (stored.tz is None) == (declared.tz is None)
    kinds = (
        t.is_integer,
        t.is_decimal,
        t.is_floating,
        lambda type_: t.is_string(type_) or t.is_large_string(type_) or t.is_string_view(type_),
        lambda type_: t.is_binary(type_) or t.is_large_binary(type_) or t.is_fixed_size_binary(type_),
        t.is_date,
    )
    if any(kind(stored) and kind(declared) for kind in kinds):
        return not (t.is_floating(stored) and stored.bit_width > declared.bit_width)
    if (t.is_list(stored) or t.is_large_list(stored)) and t.is_list(declared):
        return may_cast(stored.value_type, declared.value_type)
    if t.is_struct(stored) and t.is_struct(declared):
        names = [field.name for field in declared]
        return [field.name for field in stored] == names and all(
            may_cast(stored.field(name).type, declared.field(name).type) for name in names
        )
    return False
