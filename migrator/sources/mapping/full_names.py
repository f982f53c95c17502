"""Sections of a mapping file with the tables and columns of a native target as their records name them."""

from collections.abc import Mapping
from typing import Any

from migrator.targets.model import Target, member_name


class FullNames:
    """Names of a target's tables and columns in a file, to those of the records (``target/table``)."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._tables = {table.name: table.full_name for table in target.tables}

    def collection(self, held: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the section of a collection, or of a kind of its documents; what is written wrongly stays."""
        changed = dict(held)
        if isinstance(held.get("tables"), list):
            changed["tables"] = [self._table(name) for name in held["tables"]]
        for section, change in (("fields", self._field), ("constants", self._columns), ("choices", self._columns)):
            if section in held:
                changed[section] = change(held[section])
        if isinstance(held.get("rows"), dict):
            changed["rows"] = {self._table(table): paths for table, paths in held["rows"].items()}
        if isinstance(held.get("kinds"), dict):
            kinds = held["kinds"].items()
            changed["kinds"] = {name: self.collection(kind) if isinstance(kind, dict) else kind for name, kind in kinds}
        return changed

    def _table(self, name: Any) -> Any:  # noqa: ANN401 - whatever the file holds
        return self._tables.get(name, name) if isinstance(name, str) else name

    def _column(self, place: Any) -> Any:  # noqa: ANN401 - as above
        if not isinstance(place, str):
            return place
        table, dot, name = place.partition(".")
        column, inner, member = name.partition(".")
        if table in self._tables and any(known.name == column for known in self._target.by_name[table].columns):
            column = member_name(column)
        return f"{self._table(table)}{dot}{column}{inner}{member}"

    def _field(self, options: Any) -> Any:  # noqa: ANN401 - as above
        if not isinstance(options, dict):
            return options
        if "to" not in options:
            return {name: self._field(inner) for name, inner in options.items()}
        places = options["to"]
        return {**options, "to": list(map(self._column, places)) if isinstance(places, list) else self._column(places)}

    def _columns(self, stated: Any) -> Any:  # noqa: ANN401 - as above
        """Return constants or choices, one key for each column."""
        if not isinstance(stated, dict):
            return stated
        flat: dict[str, Any] = {}
        for name, value in stated.items():
            inner = {f"{name}.{last}": given for last, given in value.items()} if isinstance(value, dict) else {}
            flat |= {self._column(place): given for place, given in (inner or {name: value}).items()}
        return flat
