"""Object stores that show another store in part, with a prefix, or with further objects."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.storage.views.fallback_view import with_fallback as with_fallback
    from milepost.storage.views.immutable_view import immutable_objects as immutable_objects
    from milepost.storage.views.prefixed_store import PrefixedStore as PrefixedStore
    from milepost.storage.views.referenced_view import with_references as with_references
else:
    __getattr__, __dir__ = lazy_exports(__name__)
