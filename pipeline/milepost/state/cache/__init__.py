"""The node-local cache of decoded runs: always disposable."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.cache.cache import StateCache as StateCache
    from milepost.state.cache.cache_folder import EachNodesCache as EachNodesCache
    from milepost.state.cache.cache_folder import node_cache as node_cache
    from milepost.state.cache.mapped_tables import MappedTables as MappedTables
else:
    __getattr__, __dir__ = lazy_exports(__name__)
