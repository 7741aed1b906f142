"""Stored records as canonical JSON, strict in both directions."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.codec.fields import AS_IS as AS_IS
    from milepost.codec.fields import Amount as Amount
    from milepost.codec.fields import Count as Count
    from milepost.codec.fields import OmitNone as OmitNone
    from milepost.codec.fields import Sha256 as Sha256
    from milepost.codec.fields import StoredAs as StoredAs
    from milepost.codec.fields import StoredName as StoredName
    from milepost.codec.fields import TaggedRecord as TaggedRecord
    from milepost.codec.fields import Text as Text
    from milepost.codec.fields import int_keys as int_keys
    from milepost.codec.fields import sha256_fault as sha256_fault
    from milepost.codec.packing import expand_handles as expand_handles
    from milepost.codec.packing import pack as pack
    from milepost.codec.packing import shorten_handles as shorten_handles
    from milepost.codec.packing import unpack as unpack
    from milepost.codec.records import DOCUMENT_SCHEMA as DOCUMENT_SCHEMA
    from milepost.codec.records import decode as decode
    from milepost.codec.records import dump as dump
    from milepost.codec.records import encode as encode
    from milepost.codec.records import from_json as from_json
    from milepost.codec.records import load as load
    from milepost.codec.records import load_document as load_document
    from milepost.codec.records import load_row as load_row
    from milepost.codec.records import prepare_codec as prepare_codec
    from milepost.codec.records import to_json as to_json
else:
    __getattr__, __dir__ = lazy_exports(__name__)
