"""The part of an operator's signature about the updates that it reads, and its names after a rename.

A retraction must equal the row that was added, so the signature has all SQL between the operator and the state that
retracts: `updates of sums: SQL` is the digest of a query, which names its input. After a rename of a statement, the key
and the query have other names, but the rows are the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from milepost.jobspec.graph.fingerprints import relation_words
from milepost.jobspec.job.spec import JobSpec
from milepost.language.sql import sql_tokens
from milepost.operators.sql import SelectSpec

UPDATES_OF = "updates of "
"""Prefix for an input of mode retract: what the rows of its operator are made of, and for SQL, of those upstream."""
_DIGEST_LENGTH = 16
"""Length of the digest of a text in a signature; the checkpoint has the text itself."""


def sql_key(uid: str) -> str:
    """Return the key of the digest of a node's SQL."""
    return f"{UPDATES_OF}{uid}: SQL"


def query_digest(query: str) -> str:
    """Return the digest of a query in a signature."""
    return hashlib.sha256(query.encode()).hexdigest()[:_DIGEST_LENGTH]


def with_updates_of(operator: Mapping[str, Any], former: str, uid: str) -> dict[str, Any]:
    """Return an operator's signature after an operator that it reads was renamed from `former` to `uid`."""
    before = f"{UPDATES_OF}{former}: "
    return {
        f"{UPDATES_OF}{uid}: {key.removeprefix(before)}" if key.startswith(before) else key: value
        for key, value in operator.items()
    }


def with_queries_of(
    spec: JobSpec, operator: Mapping[str, Any], formers: Mapping[str, Sequence[str]], recorded: Mapping[str, str]
) -> dict[str, Any]:
    """Return an operator's signature after statements that it reads were renamed.

    A query whose text under the former names is the recorded one has the digest of its text now.

    Args:
        formers: uid of each operator -> its former uids. recorded: stateful operator -> its uid in the checkpoint.
    """
    # {ren: sums}: "updates of sums: SQL": digest of "… FROM `sums__agg`" becomes
    #              "updates of ren: SQL": digest of "… FROM `ren__agg`"

    def former(uid: str) -> str:
        names = [name for name in (uid, *formers.get(uid, ())) if sql_key(name) in operator]
        return recorded.get(uid) or (names or [uid])[0]

    renamed = dict(operator)
    for one in spec.operators:
        if not isinstance(one, SelectSpec) or sql_key(former(one.uid)) not in operator:
            continue
        text = _with_names(one, {name: former(name) for name in one.inputs})
        is_same = operator[sql_key(former(one.uid))] == query_digest(text)
        renamed = with_updates_of(renamed, former(one.uid), one.uid)
        if is_same:
            renamed[sql_key(one.uid)] = query_digest(one.query)
    return renamed


def _with_names(operator: SelectSpec, names: Mapping[str, str]) -> str:
    """Return the text of a query with other names of its inputs."""
    pieces, at, words = [], 0, relation_words(operator)
    for token in sql_tokens(operator.query):
        if token.start in words:
            word = operator.query[token.start : token.end + 1]
            name = names.get(token.text.casefold(), token.text)
            pieces += [operator.query[at : token.start], word.replace(token.text, name)]
            at = token.end + 1
    return "".join([*pieces, operator.query[at:]])
