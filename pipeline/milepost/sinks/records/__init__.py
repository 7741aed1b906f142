"""Records of sinks: what was staged, what a table consists of, carries, and is owned by."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.records.committables import ArrowSchema as ArrowSchema
    from milepost.sinks.records.committables import Committable as Committable
    from milepost.sinks.records.committables import RowsPiece as RowsPiece
    from milepost.sinks.records.committables import SchemaText as SchemaText
    from milepost.sinks.records.committables import StagedFile as StagedFile
    from milepost.sinks.records.committables import StagedRows as StagedRows
    from milepost.sinks.records.committables import StagingContext as StagingContext
    from milepost.sinks.records.committables import decode_schema as decode_schema
    from milepost.sinks.records.contents import ContentsChange as ContentsChange
    from milepost.sinks.records.contents import ContentsRecords as ContentsRecords
    from milepost.sinks.records.contents import TableContents as TableContents
    from milepost.sinks.records.contents import identity_of as identity_of
    from milepost.sinks.records.marks import Mark as Mark
    from milepost.sinks.records.marks import MarkRecords as MarkRecords
    from milepost.sinks.records.marks import TableView as TableView
    from milepost.sinks.records.reservation import RESERVATION as RESERVATION
    from milepost.sinks.records.reservation import Reservation as Reservation
    from milepost.sinks.records.reservation import read_reservation as read_reservation
    from milepost.sinks.records.table_address import CatalogAddress as CatalogAddress
    from milepost.sinks.records.table_address import TableAddress as TableAddress
    from milepost.sinks.records.table_address import address_of as address_of
    from milepost.sinks.records.table_address import at_address as at_address
    from milepost.sinks.records.table_garbage import MAX_LISTED as MAX_LISTED
    from milepost.sinks.records.table_garbage import TableGarbage as TableGarbage
    from milepost.sinks.records.table_garbage import TableGarbageList as TableGarbageList
    from milepost.sinks.records.table_garbage import TableGarbageLists as TableGarbageLists
    from milepost.sinks.records.table_keys import DATA as DATA
    from milepost.sinks.records.table_keys import staged_by as staged_by
    from milepost.sinks.records.table_registry import RegisteredTable as RegisteredTable
    from milepost.sinks.records.table_registry import TableRegistry as TableRegistry
else:
    __getattr__, __dir__ = lazy_exports(__name__)
