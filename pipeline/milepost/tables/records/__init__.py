"""Records of tables: what was staged, what a table consists of, carries, and is owned by."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.tables.records.committables import ArrowSchema as ArrowSchema
    from milepost.tables.records.committables import Committable as Committable
    from milepost.tables.records.committables import JoinedFile as JoinedFile
    from milepost.tables.records.committables import PartitionValues as PartitionValues
    from milepost.tables.records.committables import RowsPiece as RowsPiece
    from milepost.tables.records.committables import SchemaText as SchemaText
    from milepost.tables.records.committables import StagedFile as StagedFile
    from milepost.tables.records.committables import StagedRows as StagedRows
    from milepost.tables.records.committables import StagingContext as StagingContext
    from milepost.tables.records.committables import decode_schema as decode_schema
    from milepost.tables.records.committables import encode_schema as encode_schema
    from milepost.tables.records.content_digests import combined_digest as combined_digest
    from milepost.tables.records.content_digests import common_prefix as common_prefix
    from milepost.tables.records.content_digests import with_replacement_digests as with_replacement_digests
    from milepost.tables.records.contents import ContentsChange as ContentsChange
    from milepost.tables.records.contents import ContentsRecords as ContentsRecords
    from milepost.tables.records.contents import TableContents as TableContents
    from milepost.tables.records.contents import identity_of as identity_of
    from milepost.tables.records.marks import Mark as Mark
    from milepost.tables.records.marks import MarkRecords as MarkRecords
    from milepost.tables.records.marks import TableView as TableView
    from milepost.tables.records.marks import ViewMark as ViewMark
    from milepost.tables.records.reservation import RESERVATION as RESERVATION
    from milepost.tables.records.reservation import SUCCESSORS as SUCCESSORS
    from milepost.tables.records.reservation import Reservation as Reservation
    from milepost.tables.records.reservation import TableOwner as TableOwner
    from milepost.tables.records.reservation import check_reservable as check_reservable
    from milepost.tables.records.reservation import describe_owner as describe_owner
    from milepost.tables.records.reservation import is_same_owner as is_same_owner
    from milepost.tables.records.reservation import new_reservation as new_reservation
    from milepost.tables.records.reservation import read_reservation as read_reservation
    from milepost.tables.records.reservation import reserve as reserve
    from milepost.tables.records.reservation import write_successor as write_successor
    from milepost.tables.records.row_digests import DIGEST_MODULUS as DIGEST_MODULUS
    from milepost.tables.records.row_digests import row_digest as row_digest
    from milepost.tables.records.row_digests import rows_identity as rows_identity
    from milepost.tables.records.table_address import CatalogAddress as CatalogAddress
    from milepost.tables.records.table_address import TableAddress as TableAddress
    from milepost.tables.records.table_address import address_of as address_of
    from milepost.tables.records.table_address import at_address as at_address
    from milepost.tables.records.table_garbage import MAX_LISTED as MAX_LISTED
    from milepost.tables.records.table_garbage import TableGarbage as TableGarbage
    from milepost.tables.records.table_garbage import TableGarbageList as TableGarbageList
    from milepost.tables.records.table_garbage import TableGarbageLists as TableGarbageLists
    from milepost.tables.records.table_garbage import is_list_key as is_list_key
    from milepost.tables.records.table_heads import HEADS as HEADS
    from milepost.tables.records.table_heads import TableHead as TableHead
    from milepost.tables.records.table_heads import create_head as create_head
    from milepost.tables.records.table_heads import newest_head as newest_head
    from milepost.tables.records.table_heads import recent_head as recent_head
    from milepost.tables.records.table_keys import DATA as DATA
    from milepost.tables.records.table_keys import OWN as OWN
    from milepost.tables.records.table_keys import check_staged_key as check_staged_key
    from milepost.tables.records.table_keys import staged_by as staged_by
    from milepost.tables.records.table_keys import staged_prefix as staged_prefix
    from milepost.tables.records.table_registry import RegisteredTable as RegisteredTable
    from milepost.tables.records.table_registry import TableRegistry as TableRegistry
else:
    __getattr__, __dir__ = lazy_exports(__name__)
