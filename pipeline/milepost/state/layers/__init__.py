"""Layers: rows sorted by the hash of their key, and how keys are hashed, compared and found in them."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.layers.exact_keys import Bools as Bools
    from milepost.state.layers.exact_keys import key_numbers as key_numbers
    from milepost.state.layers.interpolation_search import Drifts as Drifts
    from milepost.state.layers.interpolation_search import drifts_of as drifts_of
    from milepost.state.layers.key_groups import MAX_KEY_GROUPS as MAX_KEY_GROUPS
    from milepost.state.layers.key_groups import Hashes as Hashes
    from milepost.state.layers.key_groups import Ints as Ints
    from milepost.state.layers.key_groups import key_group_range as key_group_range
    from milepost.state.layers.key_groups import overlap as overlap
    from milepost.state.layers.key_groups import subtask_of_key_group as subtask_of_key_group
    from milepost.state.layers.key_hash import KeyHash as KeyHash
    from milepost.state.layers.key_hash import new_secret as new_secret
    from milepost.state.layers.layer import KeySpec as KeySpec
    from milepost.state.layers.layer import Layer as Layer
    from milepost.state.layers.layer import match as match
    from milepost.state.layers.layer import newest_rows as newest_rows
    from milepost.state.layers.layer import sort_rows as sort_rows
    from milepost.state.layers.layer import stable_order as stable_order
else:
    __getattr__, __dir__ = lazy_exports(__name__)
