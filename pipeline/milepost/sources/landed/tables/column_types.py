"""Check that the declared columns have the types that they have in the table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from milepost.language import ColumnType, to_arrow
from milepost.sources.landed.tables.table_failures import TableFailures


def check_declared(
    failures: TableFailures, types: Mapping[str, ColumnType], columns: Mapping[str, pa.DataType | str], where: str = ""
) -> None:
    """Check the declared columns against those of the table.

    Args:
        columns: of the table; a text is the name of a type that has no equivalent.
        where: which state of the table has them, for messages.
    Raises: InvalidRequest.
    """
    for name, type_ in types.items():
        if name not in columns:
            raise failures.invalid(
                f"has no column {name}{where}; its columns: {', '.join(columns)}",
                "correct `schema`: a column is named as in the table, and by its exact case",
            )
        stored, declared = columns[name], to_arrow(type_)
        if isinstance(stored, str) or plain_type(stored) != declared:
            raise failures.refused(
                f"has a column {name} of the type {stored}{where}, and `schema` declares it as {type_}",
                f"declare {name} with the type that it has in the table",
            )


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return a type with nullable nested fields, as those of declared types are."""
    if pa.types.is_list(data_type):
        return pa.list_(plain_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        fields = [data_type.field(number) for number in range(data_type.num_fields)]
        return pa.struct([(field.name, plain_type(field.type)) for field in fields])
    return data_type
