"""The law of `latest`: the newest on-time row per key, or none if it is a delete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.latest.spec import LatestOperator
from milepost_testkit.models.data.batch import Claim, Place, declared_order, differing, microseconds, names, whole_order


@dataclass(frozen=True)
class LatestLaw:
    """Rows are ordered by the declared columns (null least, NaN greatest), then deletes last, then by all columns.

    With a ttl, a deleted key may show an older row again once its delete may have expired.
    """

    spec: LatestOperator

    def late(self, place: Place) -> str | None:
        ttl = self.spec.tombstone_ttl
        return None if ttl is None else f"{place.time_us} < __stamp - {microseconds(ttl)}"

    def batch(self, place: Place) -> str:
        if self.spec.is_partial:
            return self._folded(place)
        return f"SELECT upto, {names(self._shown(place))} FROM ({self._newest(place)}) WHERE NOT __gone"

    def _folded(self, place: Place) -> str:
        """Return the newest value of each column after the last delete, and the greatest of equal sequences."""
        key, sequence = names(self.spec.key), ", ".join(f'"{name}"' for name in self.spec.sequence_by)
        gone = "false" if self.spec.delete_when is None else f"coalesce({self.spec.delete_when}, false)"
        keyed = place.keyed((*self.spec.key, *self.spec.sequence_by))
        rows = f"SELECT * REPLACE ({keyed}) FROM (SELECT *, {gone} AS __gone FROM ({place.present}))"
        order = f"ORDER BY {sequence}, __gone ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
        live = f"SELECT * FROM ({rows}) QUALIFY NOT bool_or(__gone) OVER (PARTITION BY upto, {key} {order})"
        newest = ", ".join(f"{one} DESC" for one in sequence.split(", "))
        values = []
        for name in self._shown(place):
            if name in self.spec.key:
                values.append(f'"{name}"')
                continue
            whole = ", ".join(whole_order(place, name, descends=True))
            open_ = [f'"{name}" IS NULL'] if self.spec.ignore_nulls else []
            if self.spec.unchanged is not None and place.columns[name] == "VARCHAR":
                open_.append(f"coalesce(\"{name}\" = '{self.spec.unchanged}', false)")
            filled = f"NOT ({' OR '.join(open_)})" if open_ and name not in self.spec.sequence_by else "true"
            values.append(f'first("{name}" ORDER BY {newest}, {whole}) FILTER (WHERE {filled}) AS "{name}"')
        return f"SELECT upto, {', '.join(values)} FROM ({live}) GROUP BY upto, {key}"

    def claims(self, place: Place) -> Iterator[Claim]:
        columns, key = names(self._shown(place)), names(self.spec.key)
        mark = f', "{DELETED_COLUMN}"' if self.spec.delete_when is not None else ""
        newest = place.newest(self.spec.key, columns + mark)
        shown = f'SELECT upto, {columns} FROM ({newest}) WHERE NOT "{DELETED_COLUMN}"' if mark else newest
        own = place.at_each(f'SELECT * FROM "{place.uid}"')
        often = f"SELECT upto, __epoch, {key} FROM ({own}) GROUP BY upto, __epoch, {key} HAVING count(*) > 1"
        yield Claim("an epoch puts a key out once", often)
        if mark:
            before = f'lag("{DELETED_COLUMN}") OVER (PARTITION BY upto, {key} ORDER BY __order)'
            rows = f"SELECT *, coalesce({before}, true) AS was_gone FROM ({own})"
            yield Claim(
                "a delete is of a key that has a row", f'SELECT * FROM ({rows}) WHERE "{DELETED_COLUMN}" AND was_gone'
            )
        if self.spec.tombstone_ttl is None:
            yield Claim("the newest rows are the batch's", differing(shown, self.batch(place)))
            return
        yield Claim("no row is missing", f"({self.batch(place)}) EXCEPT ALL ({shown})")
        yield Claim("a row that is older than a delete came when that was forgotten", self._revived(place, shown))

    def _shown(self, place: Place) -> tuple[str, ...]:
        return self.spec.columns or tuple(place.columns)

    def _ranked(self, place: Place) -> str:
        """Return on-time rows at each checkpoint, with a delete flag and their rank within the key."""
        gone = "false" if self.spec.delete_when is None else f"coalesce({self.spec.delete_when}, false)"
        until = (
            "NULL" if self.spec.tombstone_ttl is None else f"{place.time_us} + {microseconds(self.spec.tombstone_ttl)}"
        )
        rows = place.at_each(f"SELECT *, {gone} AS __gone, {until} AS __until FROM ({place.on_time(self.late(place))})")
        keyed = f"SELECT * REPLACE ({place.keyed(self.spec.key)}) FROM ({rows})"
        order = [declared_order(place, name, descends=True) for name in self.spec.sequence_by]
        order += ["__gone DESC", "CASE WHEN __gone THEN __until END DESC NULLS LAST"]
        kept = [name for name in place.columns if name in self._kept(place)]
        order += [one for name in kept for one in whole_order(place, name, descends=True)]
        rank = f"row_number() OVER (PARTITION BY upto, {names(self.spec.key)} ORDER BY {', '.join(order)})"
        return f"SELECT *, {rank} AS __rank FROM ({keyed})"

    def _newest(self, place: Place) -> str:
        return f"SELECT * FROM ({self._ranked(place)}) WHERE __rank = 1"

    def _revived(self, place: Place, shown: str) -> str:
        """Return shown rows whose key has a newer delete that had not expired when they arrived."""
        same = " AND ".join(f's."{name}" IS NOT DISTINCT FROM r."{name}"' for name in self._shown(place))
        keys = " AND ".join(f'd."{name}" IS NOT DISTINCT FROM r."{name}"' for name in self.spec.key)
        # One of several equal rows is enough, because the others may have been dropped.
        return (
            f"SELECT s.* FROM ({shown}) s "
            f"JOIN ({self._ranked(place)}) r ON s.upto = r.upto AND {same} AND NOT r.__gone "
            f"JOIN ({self._newest(place)}) d ON d.upto = r.upto AND d.__gone AND {keys} "
            "GROUP BY ALL HAVING bool_and(NOT coalesce(r.__stamp > d.__until, false))"
        )

    def _kept(self, place: Place) -> set[str]:
        return {*self.spec.key, *self.spec.sequence_by, *self._shown(place)}
