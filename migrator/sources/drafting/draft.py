"""A first mapping of collections that nobody has described: what their fields look like, as a file to be edited.

A field is placed by its name and by the types of its values (``names``); a reference is placed by asking whether its
values are ids of another collection. What is not placed is listed, and goes to the remainder.
Words of states are written into the draft, since a mapping needs them; no other value is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from migrator import constraints
from migrator.sources.drafting.fields import SampledField, fields_of
from migrator.sources.drafting.names import (
    COLLECTIONS,
    COUNTED_FROM_ZERO,
    ENDED,
    HALTED,
    HEARTBEAT,
    MESSAGE,
    PERIOD,
    PLACES,
    REFERENCE,
    SIZE,
    TENANT,
    WITH_THE_FIRST,
    DraftColumn,
    normalised,
    spellings,
    unit_of,
    word_for,
)
from migrator.sources.mapping import tables
from migrator.sources.mapping.file import OPEN

CREATED: Final = "runs.created_at"
_FOUND_SHARE: Final = 0.5
"""Share of a field's texts or numbers that must be ids of a collection that it refers to."""
_FEWEST_IDS: Final = 2
_LARGEST_LOCK: Final = 8
_DEFAULTS: Final = {"execution_logs.level": "info", "workers.kind": "worker"}
"""Column that may not be null to the constant that is proposed where no field was found for it.

There is none for a state: a run that is queued is executed, and a schedule that is scheduled fires.
"""


_FROM_THE_ID: Final = {
    "locks": ("locks.key", "string", ""),
    "schedules": ("schedules.name", "string", ""),
    "runs": ("runs.created_at", "objectId", ', as = "id-time"'),
}
"""Table to a column that must be filled, to the type of an ``_id`` that can fill it, and the option for that. The name
of a schedule may also be the text of an ObjectId."""


class _Sampled(msgspec.Struct, frozen=True):
    """A collection to be described."""

    name: str
    documents: int
    fields: Mapping[str, SampledField]
    table: str
    """The first table that its documents feed."""
    chosen: bool
    """The table was named by the caller."""


def mapping_text(
    name: str,
    samples: Mapping[str, Sequence[bytes]],
    known_ids: Callable[[str, Sequence[Any]], int],
    chosen: Mapping[str, str],
) -> str:
    """Return the text of a mapping file called ``name`` for these collections, by a sample of each as BSON.

    ``known_ids`` returns how many of some values are ids of a collection. ``chosen``: collection to the table that its
    documents feed first; that of any other is guessed.
    """
    sampled = []
    for collection, raws in samples.items():
        fields = fields_of(raws)
        table = chosen.get(collection) or _table_of(collection, fields)
        sampled.append(_Sampled(collection, len(raws), fields, table, collection in chosen))
    sampled.sort(key=lambda one: list(PLACES).index(one.table))
    lines = list(_head(name))
    for one in sampled:
        lines += ["", *_Draft(one, sampled, known_ids).lines()]
    return "\n".join(lines) + "\n"


def _head(name: str) -> Iterator[str]:
    yield "# A draft: read every line of it. migrator source check says what it makes of the documents."
    yield "# It holds words that were found in documents (states); no other value of a document is in it."
    yield f'# A word that was not understood is written as "{OPEN}": put a word of the column in its place.'
    yield "# docs/mapping.md describes the file."
    yield ""
    yield "[source]"
    yield f'name = "{name}"'


def _table_of(name: str, fields: Mapping[str, SampledField]) -> str:
    """Guess what a collection holds, from its name and from what only such documents have."""

    def named(table: str) -> bool:
        return any(word in normalised(name) for word in COLLECTIONS[table])

    def has(table: str, *columns: str) -> bool:
        return any(_found(place, fields, ()) for place in PLACES[table] if place.column.partition(".")[2] in columns)

    top = {path: field for path, field in fields.items() if "." not in path and path != "_id"}
    if len(top) <= _LARGEST_LOCK and has("locks", "expires_at") and has("locks", "holder") and not has("runs", "state"):
        return "locks"
    if any(field.is_cron for field in fields.values()) or has("schedules", "interval_ms"):
        return "schedules"
    if has("execution_logs", "level") and has("execution_logs", "message") and has("execution_logs", "logged_at"):
        return "execution_logs"
    was_run = has("runs", "started_at", "finished_at", "attempt")
    if not was_run and (has("schedules", "next_fire_at") or named("schedules")):
        return "schedules"
    if not was_run and (_found(HEARTBEAT, fields, ()) or named("workers")):
        return "workers"
    return "locks" if named("locks") and has("locks", "expires_at") else "runs"


class _Draft:
    """Writes the section of one collection."""

    def __init__(
        self, sampled: _Sampled, others: Sequence[_Sampled], known_ids: Callable[[str, Sequence[Any]], int]
    ) -> None:
        self._sampled, self._fields, self._table = sampled, sampled.fields, sampled.table
        self._others, self._known_ids = others, known_ids
        self._tenant = next(
            (path for path, field in self._fields.items() if normalised(path) in TENANT and field.kind == "string"),
            None,
        )
        self._placed = self._place()
        self._references = dict(self._refer())
        self._fed = self._feed()
        self._second = self._second_times()
        self._id = self._id_line()
        self._ends = self._other_ends()

    def lines(self) -> Iterator[str]:
        """Yield the lines of the section."""
        section = _key(self._sampled.name)
        guess = "" if self._sampled.chosen else f"; if they are not {self._table}: --table {section}=TABLE"
        yield f"[collections.{section}]  # {self._sampled.documents:,} documents were looked at{guess}"
        yield f"tables = [{', '.join(chr(34) + table + chr(34) for table in self._fed)}]"
        if self._fed == ["schedules"]:
            yield "# no field says when a schedule fires, so it makes no trigger"
        yield ""
        yield f"[collections.{section}.fields]"
        yield from self._field_lines()
        halted = self._halted()
        if halted is not None:
            yield ""
            yield f"[collections.{section}.choices]"
            halts = f'{{ if = {_text(halted)}, equals = true, value = "paused" }}'
            yield f'schedules.status = [{halts}, {{ value = "scheduled" }}]'
        constants = list(self._missing())
        if constants:
            yield ""
            yield f"[collections.{section}.constants]"
            yield from constants

    def _place(self) -> dict[str, DraftColumn]:
        """Return the place of each field that has one; a column is filled by one field, the closest by its name."""
        placed: dict[str, DraftColumn] = {}
        filled: set[str] = set()
        if self._tenant is not None:
            placed[self._tenant] = DraftColumn("", "text", ())
        for place in PLACES[self._table]:
            if place.column in filled:
                continue
            column = _found(place, self._fields, placed)
            if column is None and place.want == "word":
                column = self._word_by_content(place, placed)
            if column is None and place.want == "cron":
                column = next((path for path, field in self._fields.items() if field.is_cron), None)
            if column is not None:
                placed[column] = place
                filled.add(place.column)
        placed.pop(self._tenant or "", None)
        return placed

    def _word_by_content(self, place: DraftColumn, placed: Mapping[str, DraftColumn]) -> str | None:
        """Return a field whose words are mostly those of a column, whatever its name."""
        known = constraints.WORDS[place.column]
        for path, field in self._fields.items():
            if path in placed or path == "_id" or "." in path or field.kind != "string" or not field.is_word:
                continue
            if sum(word_for(word, known) is not None for word in field.words) > len(field.words) / 2:
                return path
        return None

    def _refer(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield field, column and collection of each reference."""
        taken: set[str] = set()
        for path, field in self._fields.items():
            if path in ("_id", self._tenant) or not field.ids or field.is_time or field.is_cron:
                continue
            for other in self._others:
                column = self._reference_column(path, other)
                if column is None or column in taken or not self._may_refer(path, field, other):
                    continue
                if self._is_found(field, other):
                    taken.add(column)
                    self._placed.pop(path, None)
                    yield path, (column, other.name)
                    break

    def _reference_column(self, path: str, other: _Sampled) -> str | None:
        """Return the column for a reference from this collection to another one."""
        if other.name == self._sampled.name:
            return "runs.retry_of" if self._table == "runs" and normalised(path) not in REFERENCE else None
        columns = [name for name, target in tables.TARGETS.items() if target == other.table and name != "retry_of"]
        known = tables.types_of(self._table)
        return next((f"{self._table}.{name}" for name in columns if name in known), None)

    def _may_refer(self, path: str, field: SampledField, other: _Sampled) -> bool:
        """Whether the name allows a reference: that of a number must, since small numbers meet by chance."""
        if field.kind in ("objectId", "binData", "string"):
            return True
        name = normalised(path)
        return name in REFERENCE or name.endswith("id") or normalised(other.name).rstrip("s") in name

    def _is_found(self, field: SampledField, other: _Sampled) -> bool:
        values = list(field.ids)
        known = self._known_ids(other.name, values)
        if field.kind in ("objectId", "binData"):
            return known > 0  # these are unique in the world; the others may name documents that were deleted
        return known >= max(min(_FEWEST_IDS, len(values)), _FOUND_SHARE * len(values))

    def _feed(self) -> list[str]:
        """Return the tables that the documents feed; a trigger only if something makes it fire."""
        columns = {place.column for place in self._placed.values()}
        if self._table == "schedules" and not {f"triggers.{one}" for one in constraints.CAUSES} & columns:
            for path, place in list(self._placed.items()):
                if place.column.startswith("triggers."):
                    del self._placed[path]
        fed = {place.column.partition(".")[0] for place in self._placed.values()} - {self._table}
        return [self._table, *sorted(fed)]

    def _second_times(self) -> dict[str, str]:
        """Return the time that also says when a run was created, if no field says that alone."""
        by_column = {place.column: path for path, place in self._placed.items()}
        if self._table != "runs" or CREATED in by_column:
            return {}
        known = ("runs.scheduled_at", "runs.started_at", "runs.finished_at")
        path = next((by_column[column] for column in known if column in by_column), None)
        if path is None:
            return {}
        if self._placed[path].column != "runs.scheduled_at":
            return {path: CREATED}
        # A run of no slot has no scheduled_at. So the field is written back from what every run has.
        self._placed[path] = DraftColumn(CREATED, "time", ())
        return {path: "runs.scheduled_at"}

    def _other_ends(self) -> list[str]:
        """Return fields that say when runs ended of which the field of ``runs.finished_at`` says nothing."""
        end = next((path for path, place in self._placed.items() if place.column == "runs.finished_at"), None)
        if end is None:
            return []
        first, ends = self._fields[end], []
        left = self._sampled.documents - first.filled
        for path, field in sorted(self._fields.items(), key=lambda one: (-one[1].filled, one[0])):
            is_beside = path.rpartition(".")[0] == end.rpartition(".")[0] and not self._is_mapped(path)
            is_end = any(word_for(name, ENDED) for name in spellings(path, "time"))
            if is_beside and is_end and field.encoding == first.encoding and field.filled <= left:
                ends.append(path)
                left -= field.filled
        return ends

    def _id_line(self) -> tuple[str, str] | None:
        """Return the column that the ``_id`` can fill, and its line, if no field fills that column."""
        field = self._fields.get("_id")
        column, kind, converter = _FROM_THE_ID.get(self._table, ("", "", ""))
        if self._table == "schedules" and field is not None and field.types.keys() == {"objectId"}:
            kind, converter = "objectId", ', as = "id-text"'
        if field is None or field.types.keys() != {kind} or self._fills(column) or column in self._second.values():
            return None
        return column, f'_id = {{ to = "{column}"{converter} }}  # {field.described}'

    def _field_lines(self) -> Iterator[str]:
        covered: set[str] = set()
        if self._tenant is None:
            yield "# no field looks like a tenant: set [source] default_tenant in config.toml"
        if self._id is not None:
            yield self._id[1]
        for path, field in self._fields.items():
            if path == "_id" or path in self._ends or any(path.startswith(f"{outer}.") for outer in covered):
                continue
            line = self._line(path, field)
            if line is not None:
                covered.add(path)
                yield line
            elif not any(self._is_mapped(inner) for inner in self._fields if inner.startswith(f"{path}.")):
                covered.add(path)
                yield from self._unplaced(path)

    def _halted(self) -> str | None:
        """Return the field that says whether a schedule rests, if no field fills its status."""
        if self._table != "schedules" or self._fills("schedules.status"):
            return None
        return next(
            (path for path, one in self._fields.items() if normalised(path) in HALTED and one.kind == "bool"), None
        )

    def _is_mapped(self, path: str) -> bool:
        return path in self._placed or path in self._references or path == self._tenant

    def _line(self, path: str, field: SampledField) -> str | None:
        """Return the line of a field; None for one that has no column."""
        if path == self._tenant:
            return f'{_key(path)} = {{ as = "tenant" }}  # {field.described}'
        if path in self._references:
            column, collection = self._references[path]
            options = [f'to = "{column}"', f"collection = {_text(collection)}", *self._nulls(field)]
            return f"{_key(path)} = {{ {', '.join(options)} }}  # {field.described}"
        place = self._placed.get(path)
        if place is None:
            return None
        options, note = self._options(path, field, place)
        return f"{_key(path)} = {{ {', '.join(options)} }}  # {field.described}{note}"

    def _options(self, path: str, field: SampledField, place: DraftColumn) -> tuple[list[str], str]:
        columns = [place.column, *([self._second[path]] if path in self._second else [])]
        to = f'"{place.column}"' if len(columns) == 1 else msgspec.json.encode(columns).decode()
        options, note = [f"to = {to}"], ""
        if place.want == "word":
            options += _words(place.column, field)
        elif place.want == "time" and field.encoding != "date":
            options += _encoded(field)
        elif place.want == "cron":
            options.append(f'dialect = "{field.dialects[0]}"')
            others = ", ".join(field.dialects[1:])
            note = f"; the dialect is a guess: {others} take these lines too" if others else ""
        elif place.want == "any" and field.is_json:
            options += ['as = "json-text"', *(["spaced = true"] if field.is_spaced else [])]
        elif place.want == "duration":
            unit = unit_of(path)
            options.append(f'unit = "{unit or "seconds"}"')
            note = "" if unit else "; the unit is a guess"
        if place.column == "runs.attempt" and normalised(path) in COUNTED_FROM_ZERO:
            options.append("add = 1")
        if place.column == "schedules.max_retries" and not WITH_THE_FIRST.isdisjoint(spellings(path, "number")):
            options += ["add = -1", "clamp = true"]
        if place.column == "runs.finished_at" and self._ends:
            options.append(f"also = [{', '.join(map(_text, self._ends))}]")
        if place.want in ("number", "duration") and field.kind != "int":
            options.append(f'type = "{field.kind}"')
        return options + self._nulls(field), note

    def _nulls(self, field: SampledField) -> list[str]:
        """Return the option for a field that every document has, and some as null."""
        nulls = field.types["null"]
        return ["write_null = true"] if nulls and field.documents == self._sampled.documents else []

    def _unplaced(self, path: str) -> Iterator[str]:
        """Yield comments about a field without a column, and about the times inside it."""
        field = self._fields[path]
        if _may_be_time(path, field):
            yield self._time_hint(path)
            return
        yield f"# {_key(path)} is kept in the remainder ({field.described}){self._hint(path, field)}"
        yield from (
            self._time_hint(one)
            for one in self._fields
            if one.startswith(f"{path}.") and _may_be_time(one, self._fields[one])
        )

    def _time_hint(self, path: str) -> str:
        """Return a line that fills a column of a time as soon as its comment sign goes and the column is named."""
        field = self._fields[path]
        options = ", ".join((f'to = "{self._table}.{OPEN}"', *(_encoded(field) if field.encoding != "date" else ())))
        return f"# {_key(path)} = {{ {options} }}  # {field.described}: a time"

    def _hint(self, path: str, field: SampledField) -> str:
        """Return the description of a field that has no column."""
        if normalised(path) in REFERENCE and field.ids and len(self._others) > 1:
            return "; no reference: its values are no _id of another collection"
        if field.kind == "array":
            return "; an array makes no rows"
        if field.naive > field.filled / 2:
            return "; a time without an offset, which no converter reads"
        if (
            self._table == "runs"
            and field.is_word
            and len(field.words or field.codes) > 1
            and not self._fills("runs.state")
        ):
            return "; few different values: runs.state?"
        return self._hint_by_name(path, field)

    def _hint_by_name(self, path: str, field: SampledField) -> str:
        if self._table == "schedules" and normalised(path) in PERIOD and field.kind == "string" and field.is_word:
            return "; words of periods: triggers.interval_ms, with words to milliseconds?"
        if self._table == "runs" and normalised(path) in MESSAGE and not self._fills("runs.error"):
            return "; a message: runs.error, if only runs that failed have one"
        if self._table == "runs" and "duration" in normalised(path):
            return "; runs.duration_ms follows from runs.started_at and runs.finished_at"
        return ""

    def _fills(self, column: str) -> bool:
        return any(place.column == column for place in self._placed.values())

    def _constant(self, column: str) -> str:
        """Return the constant that is proposed for a column; ``OPEN`` where it is not certain."""
        if column == "schedules.status" and self._fills("schedules.enabled"):
            return "scheduled"  # the field of ``enabled`` says which of them fire
        return _DEFAULTS.get(column, OPEN)

    def _missing(self) -> Iterator[str]:
        """Yield lines for columns that may not be null, and that no field was found for."""
        filled = {place.column for place in self._placed.values()} | {column for column, _ in self._references.values()}
        filled |= {*self._second.values(), *(self._id or ())[:1]}
        filled |= {"schedules.status"} if self._halted() else set()
        for table in self._fed:
            for column in sorted(tables.needed_columns(table)):
                name = f"{table}.{column}"
                if name in filled or tables.TARGETS.get(column) in self._fed:
                    continue
                why = "may not be null, and no field was found for it"
                if tables.type_of(name) == "text":
                    yield f'{name} = "{self._constant(name)}"  # {why}{_effect(name)}'
                else:
                    yield f"# {name} {why}: name it above"
        if self._table == "schedules" and "schedules.handler_name" not in filled:
            yield f'# schedules.handler_name = "{OPEN}"  # a schedule without it is not run'


def _effect(column: str) -> str:
    """Return the effect of a column's constant, where a wrong one does harm."""
    return {
        "runs.state": "; queued: each is executed on PostgreSQL",
        "schedules.status": "; scheduled: each fires on PostgreSQL",
    }.get(column, "")


def _found(place: DraftColumn, fields: Mapping[str, SampledField], placed: Any) -> str | None:  # noqa: ANN401 - a container
    """Return the field whose name is closest to those of a place, and whose values suit it; None if there is none."""
    best: tuple[int, int, int, str] | None = None
    for path, field in fields.items():
        if path == "_id" or path in placed or not _suits(path, field, place):
            continue
        if any(path.startswith(f"{outer}.") for outer in placed):
            continue
        for distance, name in enumerate(spellings(path, place.want)):
            if name in place.names:
                rank = (place.names.index(name), path.count("."), distance, path)
                best = rank if best is None or rank < best else best
    return None if best is None else best[3]


def _suits(path: str, field: SampledField, place: DraftColumn) -> bool:
    if place.want in ("time", "cron"):
        return field.is_time if place.want == "time" else field.is_cron
    if field.is_time or field.is_cron:
        return False
    match place.want:
        case "word":
            outer = path.rpartition(".")[0]
            suits = field.is_word and (not outer or normalised(outer) in place.names)
        case "number" | "duration":
            suits = field.kind in ("int", "long", "double")
        case "texts":
            suits = field.kind == "array" and field.text_lists == field.types["array"]
        case "any":
            suits = field.kind != "null"
        case _:
            suits = field.kind == {"flag": "bool", "object": "object", "text": "string"}[place.want]
    return suits


def _may_be_time(path: str, field: SampledField) -> bool:
    """Whether a field that has no column holds times; numbers of a size may only look like it."""
    return field.is_time and not (field.kind in ("int", "long", "double") and SIZE.search(normalised(path)))


def _encoded(field: SampledField) -> list[str]:
    """Return the options of a time that is no date."""
    options = [f'encoding = "{field.encoding}"']
    if field.kind not in ("string", "double" if field.encoding == "seconds" else "long"):
        options.append(f'type = "{field.kind}"')
    return options


def _words(column: str, field: SampledField) -> list[str]:
    known = constraints.WORDS[column]
    if field.kind == "string":
        commonest = sorted(field.words, key=lambda word: (-field.words[word], word))
        pairs = [(word, word_for(word, known) or OPEN) for word in commonest]
        return [f"words = {{ {', '.join(f'{_key(word)} = {chr(34)}{ours}{chr(34)}' for word, ours in pairs)} }}"]
    codes = ", ".join(f'{code} = "{OPEN}"' for code in sorted(field.codes))
    return [f"words = {{ {codes} }}", f'type = "{field.kind}"']


def _key(path: str) -> str:
    plain_key = path.replace("-", "").replace("_", "").isascii() and path.replace("-", "").replace("_", "").isalnum()
    return path if plain_key else _text(path)


def _text(text: str) -> str:
    """Return a text as TOML writes it: as JSON does, but for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
