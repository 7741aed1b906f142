"""Object stores, the keys of a job, and the manifest log. Only this package imports boto3."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.storage.copying import MAX_OBJECT_BYTES as MAX_OBJECT_BYTES
    from milepost.storage.copying import Copy as Copy
    from milepost.storage.copying import OnCopied as OnCopied
    from milepost.storage.copying import copy_objects as copy_objects
    from milepost.storage.copying import create_same as create_same
    from milepost.storage.keys import LocalRoot as LocalRoot
    from milepost.storage.keys import is_loopback as is_loopback
    from milepost.storage.keys import parse_root as parse_root
    from milepost.storage.layout import after_commit_key as after_commit_key
    from milepost.storage.layout import after_commit_prefix as after_commit_prefix
    from milepost.storage.layout import channel_prefix as channel_prefix
    from milepost.storage.layout import consumed_prefix as consumed_prefix
    from milepost.storage.layout import contents_prefix as contents_prefix
    from milepost.storage.layout import dimensions_prefix as dimensions_prefix
    from milepost.storage.layout import metrics_prefix as metrics_prefix
    from milepost.storage.layout import require_own_key as require_own_key
    from milepost.storage.layout import require_own_prefix as require_own_prefix
    from milepost.storage.layout import state_prefix as state_prefix
    from milepost.storage.notices import AbortNotice as AbortNotice
    from milepost.storage.notices import read_notice as read_notice
    from milepost.storage.notices import write_notice as write_notice
    from milepost.storage.object_cache import OBJECT_CACHE as OBJECT_CACHE
    from milepost.storage.object_cache import ObjectCache as ObjectCache
    from milepost.storage.object_handles import check_handle as check_handle
    from milepost.storage.object_handles import digest_of as digest_of
    from milepost.storage.object_handles import handle_files as handle_files
    from milepost.storage.object_handles import handle_of as handle_of
    from milepost.storage.object_handles import read_handle as read_handle
    from milepost.storage.object_handles import stat_handle as stat_handle
    from milepost.storage.object_handles import stored_file as stored_file
    from milepost.storage.object_handles import write_content_addressed as write_content_addressed
    from milepost.storage.open import open_store as open_store
    from milepost.storage.requests import NO_REQUESTS as NO_REQUESTS
    from milepost.storage.requests import REQUEST_COUNTER as REQUEST_COUNTER
    from milepost.storage.requests import StoreRequests as StoreRequests
    from milepost.storage.requests import own_put as own_put
    from milepost.storage.scratch_disk import on_scratch_disk as on_scratch_disk
    from milepost.storage.scratch_disk import scratch_file as scratch_file
    from milepost.storage.tls import failed_before_connecting as failed_before_connecting
    from milepost.storage.version_search import latest_version as latest_version
    from milepost.storage.views import PrefixedStore as PrefixedStore
    from milepost.storage.views import immutable_objects as immutable_objects
    from milepost.storage.views import with_fallback as with_fallback
    from milepost.storage.views import with_references as with_references
else:
    __getattr__, __dir__ = lazy_exports(__name__)
