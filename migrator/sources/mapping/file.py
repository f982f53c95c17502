"""A mapping in a TOML file: read, checked as a whole, and all mistakes reported at once with their lines.

``docs/mapping.md`` describes the file.
"""

import difflib
import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from migrator import constraints, cron
from migrator.config import near, nearest, parse_toml
from migrator.errors import ConfigurationError
from migrator.files import UnreadableError, read_text
from migrator.sources import history
from migrator.sources.mapping import tables
from migrator.sources.mapping.codec import profile_of_mapping
from migrator.sources.mapping.converters import CONVERTERS, weekdays
from migrator.sources.mapping.full_names import FullNames
from migrator.sources.mapping.language import (
    CRON_PARTS,
    WEEKDAYS,
    BsonType,
    Case,
    Encoding,
    Field,
    Holds,
    IdType,
    Mapped,
    NumberType,
    SourceMapping,
    TimeFormat,
    Unit,
    When,
)
from migrator.sources.profile import DeclaredLoss, History, Profile
from migrator.targets import load_target, register
from migrator.targets.model import SCHEDULER, SEPARATOR
from migrator.targets.options import OPTION, option_values, substituted
from migrator.targets.reading import read_target

Key = tuple[str, ...]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "trim": (bool,),
    "exact": (bool,),
    "allow_unknown": (bool,),
    "clamp": (bool,),
    "spaced": (bool,),
    "factor": (int, float),
    "add": (int, float),
    "null_value": (int,),
    "local": (bool,),
    "write_default": (bool,),
    "write_null": (bool,),
    "fixed": (dict,),
    "number": (str,),
    "unit_from": (str,),
    "expected": (str,),
    "time": (str,),
    "by": (str,),
    "taken": (bool,),
    "begins": (str,),
    "zone": (str,),
    "part": (str,),
}
"""Option to the types of its value."""
_WHAT: Final[Mapping[str, str]] = {
    "also": "a list of paths",
    "below": "the paths of two numbers",
    "zone": "the name of a time zone",
    "part": "the field of a cron line that it holds",
    "members": "the list of members in the order of the cron line",
    "number": "the member that holds the number",
    "unit_from": "the member that holds the unit",
    "expected": "the version that is known",
    "time": "the field that holds the time of day",
    "by": "a field of the other collection",
    "begins": "bytes as hexadecimal digits",
    "factor": "a number",
    "add": "a number",
    "null_value": "a whole number",
    "fixed": "members and their texts",
} | dict.fromkeys(
    ("trim", "exact", "allow_unknown", "clamp", "spaced", "local", "write_default", "write_null", "taken"),
    "true or false",
)
"""Option to what is expected of it."""
_LISTS: Final = ("also", "members", "below")
_CONVERTERS: Final = tuple(name for name, converter in CONVERTERS.items() if converter.in_files)
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "encoding": get_args(Encoding),
    "unit": get_args(Unit),
    "holds": get_args(Holds),
    "time_format": get_args(TimeFormat),
    "first": WEEKDAYS,
    "id_type": get_args(IdType),
    "part": CRON_PARTS,
    "type": get_args(BsonType),
}
LARGEST: Final = 1_000_000
"""Bytes of a mapping file."""
LONGEST_LINE: Final = 10_000
"""Characters."""
MOST_ENTRIES: Final = 10_000
"""Keys and members of lists of a file, taken together."""
DEEPEST: Final = 100
"""Levels of a file, and members of a field's path: documents of MongoDB have no more."""
MOST_MISTAKES: Final = 100
"""That are reported at once."""
OPEN: Final = "?"
"""Stands in a draft for a word or a value that nothing was found for."""

_OF_A_COLLECTION: Final = (
    *("tables", "fields", "constants", "choices", "rows", "fixed", "expects_trigger", "object_ids", "lost", "history"),
)
_UNREADABLE: Final = re.compile(r'["\\\x00-\x1f]')
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")
_BOTH: Final = 2
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*")
_HEADER: Final = re.compile(r"\s*\[\[?(?P<path>[^\]]+)\]")
_ASSIGNMENT: Final = re.compile(
    r"""\s*(?P<path>(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
"""No character can be read as two parts of it, so that its time grows with the line alone."""
_TOO_DEEP: Final = re.compile(rf"""(?:\.\s*+(?:"[^"]*+"|'[^']*+'|[A-Za-z0-9_-]++)\s*+){{{DEEPEST}}}""")
_PART: Final = re.compile(r""""(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[A-Za-z0-9_-]+)""")


def load_mapping(
    path: Path,
    taken: Sequence[str] = (),
    target: str = SCHEDULER,
    options: Mapping[str, Any] | None = None,
) -> Profile:
    """Return the profile that a mapping file describes; ``taken``: names of sources that it may not have.

    ``target``: the target whose tables it feeds, unless it describes one itself; ``options``: what is said of the
    options of the target, or None for its examples. Its version is a number made from its content, so that a copy is
    not resumed under another mapping. Raises as ``read_mapping``.
    """
    mapping = read_mapping(path, taken, target, options)
    return profile_of_mapping(mapping, _version(mapping))


def read_mapping(
    path: Path,
    taken: Sequence[str] = (),
    target: str = SCHEDULER,
    options: Mapping[str, Any] | None = None,
) -> SourceMapping:
    """Return the mapping in a file; ``taken``, ``target`` and ``options``: as for ``load_mapping``.

    Raises ``ConfigurationError`` with every mistake of the file, each with its line.
    """
    text = _read(path)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_LINE:
            raise ConfigurationError(
                f"the mapping {path} cannot be read: line {number} is longer than {LONGEST_LINE:,} characters"
            )
        if _TOO_DEEP.search(line):  # before the parser, whose time grows with the square of the names of a key
            raise ConfigurationError(
                f"the mapping {path} cannot be read: line {number} has a path of more than {DEEPEST} members"
            )
    try:
        tree = parse_toml(text)
    except ValueError as error:
        raise ConfigurationError(f"the mapping {path} is not TOML: {error}") from None
    reading = _Reading(tree, taken, target, options)
    mapping = reading.mapping()
    if mapping is None:
        lines = _lines(text)
        placed = sorted((_line_of(lines, key), message) for key, message in reading.mistakes)
        reported = [f"{path}:{line}: {message}" for line, message in placed]
        if len(placed) == MOST_MISTAKES:
            reported.append(f"{path}: no more than {MOST_MISTAKES} mistakes are reported at once")
        raise ConfigurationError(f"the mapping {path} cannot be used", lines=reported)
    return mapping


def _read(path: Path) -> str:
    """Return the text of a file; a large one is no mapping."""
    try:
        return read_text(path, most=LARGEST)
    except UnreadableError as error:
        raise ConfigurationError(f"cannot read the mapping {path}: {error}") from None


def _version(mapping: SourceMapping) -> int:
    tree = msgspec.to_builtins(mapping)
    del tree["signs"]  # they decide no row
    digest = hashlib.sha256(msgspec.json.encode(tree, order="sorted")).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class _EnoughMistakesError(Exception):
    """As many mistakes were found as are reported; never leaves this module."""


def _check_size(tree: Mapping[str, Any], wrong: Callable[[Key, str], None]) -> None:
    """Report a tree that is deeper, or has more entries, than a mapping can need."""
    entries = 0
    level: list[tuple[Key, Any]] = [((), tree)]
    for _ in range(DEEPEST):
        inner = [
            ((*key[:DEEPEST], *name), value)
            for key, held in level
            for name, value in (
                (((one,), value) for one, value in held.items())
                if isinstance(held, dict)
                else (((), one) for one in held)
            )
        ]
        entries += len(inner)
        if entries > MOST_ENTRIES:
            wrong((), f"expected at most {MOST_ENTRIES:,} keys and members of lists in a mapping")
            return
        level = [(key, value) for key, value in inner if isinstance(value, dict | list)]
        if not level:
            return
    wrong(level[0][0], f"expected at most {DEEPEST} levels of keys and lists in one another")


class _Reading:
    """Reads a tree of TOML into a mapping, and collects what is wrong with it."""

    def __init__(
        self, tree: Mapping[str, Any], taken: Sequence[str], target: str, options: Mapping[str, Any] | None
    ) -> None:
        self._tree, self._taken, self._options = tree, taken, options
        self._target = None if target == SCHEDULER or "target" in tree else load_target(target)
        self.mistakes: list[tuple[Key, str]] = []

    def mapping(self) -> SourceMapping | None:
        """Return the mapping; None if there are ``mistakes``."""
        try:
            _check_size(self._tree, self._wrong)
            mapping = None if self.mistakes else self._mapping()
        except _EnoughMistakesError:
            return None
        return None if self.mistakes else mapping

    def _mapping(self) -> SourceMapping:
        self._known_keys((), self._tree, ("source", "target", "collections", "signs"))
        if "target" in self._tree:
            self._target = read_target(self._tree, self._wrong)
            if not self.mistakes:
                self._target = register(self._target)
        if self.mistakes:
            return SourceMapping(name="", collections=())
        source = self._table(("source",), self._tree.get("source"))
        name, documents = self._name(source), source.get("documents", "")
        if not isinstance(documents, str):
            self._wrong(("source", "documents"), "source.documents: expected a text")
        described = self._with_options_said(self._table(("collections",), self._tree.get("collections")))
        if not described:
            self._wrong(("collections",), "expected at least one section [collections.NAME]")
        sections = {one: self._table(("collections", one), held) for one, held in described.items()}
        if self._target is not None:
            sections = {one: FullNames(self._target).collection(held) for one, held in sections.items()}
        left_out = {one: self._reason(one, held) for one, held in sections.items() if "left_out" in held}
        collections = tuple(self._collection(one, held) for one, held in sections.items() if one not in left_out)
        if left_out and not collections:
            self._wrong(("collections",), "expected at least one collection that is not left out")
        self._check_references(collections, left_out)
        target = SCHEDULER if self._target is None else self._target.name
        return SourceMapping(
            name=name,
            documents=documents,
            collections=collections,
            left_out=left_out,
            target=target,
            signs=self._signs([one.name for one in collections]),
        )

    def _signs(self, known: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the fields by which documents of collections are recognised."""
        signs: dict[str, tuple[str, ...]] = {}
        for name, fields in self._table(("signs",), self._tree.get("signs", {})).items():
            if name not in known:
                self._wrong(("signs", name), f"signs: no collection {name}{nearest(name, known)}")
            elif not isinstance(fields, list) or not fields or not all(isinstance(one, str) and one for one in fields):
                self._wrong(("signs", name), f"signs of {name}: expected a list of names of fields")
            else:
                signs[name] = tuple(fields)
        return signs

    def _with_options_said(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the collections with the options of the target as they are said; raises ``ConfigurationError``."""
        if self._target is None:
            return described
        values = option_values(self._target, self._options)
        missing: list[str] = []
        changed: Mapping[str, Any] = substituted(described, values, missing)
        for name in dict.fromkeys(missing):
            where = f"option {name}: the target {self._target.name} declares none of this name and kind"
            self._wrong(("collections",), f"{where}{nearest(name, self._target.options)}")
        return changed

    def _reason(self, name: str, held: Mapping[str, Any]) -> str:
        """Return why a collection is left out."""
        key, where, reason = ("collections", name), f"collection {name}: ", held["left_out"]
        for other in held.keys() - {"left_out"}:
            self._wrong((*key, other), f"{where}{other}: the collection is left out, and nothing else is said of it")
        if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
            self._wrong((*key, "left_out"), f"{where}left_out: expected the reason, in a line")
        return str(reason)

    @property
    def _tables_fed(self) -> Sequence[str]:
        """The tables that the documents may feed."""
        return tables.TABLES if self._target is None else [table.full_name for table in self._target.tables]

    def _wrong(self, key: Key, message: str) -> None:
        if self._target is not None:  # as the file names the tables
            prefix = f"{self._target.name}{SEPARATOR}"
            key, message = tuple(name.removeprefix(prefix) for name in key), message.replace(prefix, "")
        self.mistakes.append((key, message))
        if len(self.mistakes) == MOST_MISTAKES:
            raise _EnoughMistakesError

    def _table(self, key: Key, value: object) -> Mapping[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(key, f"expected a section [{'.'.join(key)}]")
        return {}

    def _known_keys(self, key: Key, held: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
        for name in held:
            if name not in known:
                self._wrong((*key, name), f"{where}unknown key {name}{nearest(name, known)}")

    def _name(self, held: Mapping[str, Any]) -> str:
        self._known_keys(("source",), held, ("name", "documents"), "source: ")
        name = held.get("name")
        if not isinstance(name, str) or _NAME.fullmatch(name) is None:
            self._wrong(("source", "name"), "source.name: expected a name of lower-case letters, digits, - and _")
            return ""
        if name in self._taken:
            self._wrong(("source", "name"), f"source.name: {name} is the name of a source that is shipped")
        return name

    def _collection(self, name: str, held: Mapping[str, Any]) -> Mapped:
        section: Key = ("collections", name)
        if not name or "\0" in name:
            self._wrong(section, f"collection {name!r}: expected a name, without the character NUL")
        key = self._key(section, held.get("key", []))
        if "kinds" not in held:
            shape = msgspec.structs.replace(self._shape(section, held, "key"), key=key)
            self._check_key(section, shape, key)
            return shape
        self._known_keys(section, held, ("key", "kinds"), f"collection {name}: ")
        described = self._table((*section, "kinds"), held["kinds"])
        kinds = {
            kind: self._kind((*section, "kinds", kind), self._table((*section, "kinds", kind), inner))
            for kind, inner in described.items()
        }
        for kind, one in kinds.items():
            self._check_key((*section, "kinds", kind), one, key)
        firsts = dict.fromkeys(one.tables[0] for one in kinds.values() if one.tables)
        place = (*section, "kinds", *list(kinds)[:1])
        if len(firsts) > 1:
            self._wrong(place, f"collection {name}: kinds: expected the same first table, not {', '.join(firsts)}")
        if not any(one.tables for one in kinds.values()):
            self._wrong(place, f"collection {name}: kinds: expected one that feeds tables")
        return Mapped(name=name, kinds=kinds, key=key)

    def _key(self, section: Key, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            where = f"collection {section[-1]}: key: "
            self._wrong((*section, "key"), f"{where}expected a list of columns of the source's table")
            return ()
        return tuple(value)

    def _check_key(self, section: Key, shape: Mapped, key: tuple[str, ...]) -> None:
        """Report a field that no row has: the one column of a key is the ``_id``, and nothing else."""
        for field in shape.fields:
            if key in [(path,) for path in (field.path, *field.also)]:
                where = f"field {field.path} of {section[-1]}: "
                place = (*section, "fields", field.path)
                self._wrong(place, f"{where}the column {key[0]} is the whole key, and is read as _id")

    def _kind(self, section: Key, held: Mapping[str, Any]) -> Mapped:
        where = f"kind {section[-1]} of {section[1]}: "
        when = self._when(section, held["when"], where) if "when" in held else None
        if "skip" not in held:
            return msgspec.structs.replace(self._shape(section, held, "when"), when=when)
        self._known_keys(section, held, ("when", "skip"), where)
        if held["skip"] is not True:
            self._wrong((*section, "skip"), f"{where}skip: expected true, or tables and fields")
        return Mapped(name=section[1], when=when, skipped=True)

    def _when(self, section: Key, value: object, where: str) -> When | None:
        key = (*section, "when")
        if not isinstance(value, dict) or not isinstance(value.get("path"), str) or not value["path"]:
            self._wrong(key, f'{where}when: expected {{ path = "field", … }}')
            return None
        self._check_depth(value["path"], key, f"{where}when: ")
        self._known_keys(key, value, ("path", "present", "absent", "equals", "begins"), f"{where}when: ")
        conditions = [name for name in ("present", "absent", "equals", "begins") if name in value]
        if len(conditions) != 1:
            self._wrong(key, f"{where}when: expected one of present = true, absent = true, equals and begins")
        equals, begins = value.get("equals"), value.get("begins", "")
        if any(value.get(name, True) is not True for name in ("present", "absent")):
            self._wrong(key, f"{where}when: {conditions[0]}: expected true")
        if equals is not None and type(equals) not in (str, int, float, bool):
            self._wrong(key, f"{where}when: equals: expected a text, a number or a bool")
        if not isinstance(begins, str) or ("begins" in value and not begins):
            self._wrong(key, f"{where}when: begins: expected a text")
        present = None if conditions[:1] not in (["present"], ["absent"]) else conditions[0] == "present"
        return When(path=value["path"], present=present, equals=equals, begins=str(begins))

    def _shape(self, section: Key, held: Mapping[str, Any], *also_known: str) -> Mapped:
        self._known_keys(section, held, (*_OF_A_COLLECTION, *also_known), f"collection {_label(section)}: ")
        fed = self._tables(section, held.get("tables"))
        fields = tuple(self._fields(section, fed, self._table((*section, "fields"), held.get("fields"))))
        stated = self._table((*section, "constants"), held.get("constants", {}))
        constants = self._constants(section, fed, fields, stated)
        choices = self._choices(section, fed, (*_columns_filled(fields), *constants), held.get("choices", {}))
        present = self._rows(section, fed, fields, self._table((*section, "rows"), held.get("rows", {})))
        self._check_columns(section, fed, fields, (*constants, *choices))
        fixed = self._table((*section, "fixed"), held.get("fixed", {}))
        for name, value in fixed.items():
            if type(value) is not str or name == "_id":
                self._wrong((*section, "fixed", name), f"fixed {name} of {_label(section)}: expected a text")
        expects = held.get("expects_trigger", False)
        if type(expects) is not bool or (expects and "triggers" not in fed[1:]):
            where = f"collection {_label(section)}: expects_trigger: "
            self._wrong(
                (*section, "expects_trigger"), f"{where}expected true or false, and triggers after the first table"
            )
        object_ids = held.get("object_ids", False)
        if not isinstance(object_ids, bool):
            self._wrong((*section, "object_ids"), f"collection {_label(section)}: object_ids: expected true or false")
        return Mapped(
            name=section[1],
            tables=fed,
            fields=fields,
            constants=constants,
            choices=choices,
            rows=present,
            fixed=fixed,
            expects_trigger=bool(expects),
            object_ids=bool(object_ids),
            lost=self._lost(section, held.get("lost", {})),
            history=self._history(section, fed, fields, held.get("history")),
        )

    def _history(self, section: Key, fed: Sequence[str], fields: Sequence[Field], value: object) -> History | None:
        """Return by which fields documents are finished; refuse a rule under which a run might not be."""
        if value is None:
            return None
        key: Key = (*section, "history")
        where = f"history of {_label(section)}: "
        held = self._table(key, value)
        self._known_keys(key, held, ("at", "words", "empty", "begun"), where)
        at, begun, empty = held.get("at"), held.get("begun", ""), held.get("empty", [])
        if len(section) > 2:  # noqa: PLR2004 - a kind: collections, its collection, kinds, its name
            self._wrong(key, f"{where}a kind of documents has none")
        paths = [at, *([begun] if "begun" in held else []), *(empty if isinstance(empty, list) else [None])]
        finished: dict[str, tuple[str, ...]] = {}
        for path, texts, place in _lists(self._table((*key, "words"), held.get("words", {})), "", (*key, "words")):
            if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
                self._wrong(place, f"{where}words: {path}: expected a list of texts")
            else:
                finished[path] = tuple(texts)
        for path in (*paths, *finished):
            if not isinstance(path, str) or not all(path.split(".")) or "$" in path:
                self._wrong(key, f"{where}at, begun, empty, words: expected paths of fields")
                return None
            self._check_depth(path, key, where)
        self._check_finished(fed, fields, finished, empty, key, where)
        return History(at=str(at), words=finished, empty=tuple(empty), begun=str(begun))

    def _check_finished(
        self,
        fed: Sequence[str],
        fields: Sequence[Field],
        finished: Mapping[str, Sequence[str]],
        empty: Sequence[str],
        key: Key,
        where: str,
    ) -> None:
        """Refuse a rule under which a document could be left out whose run has not ended."""
        stating = [one for one in fields if history.RUN_STATE in one.columns]
        for field in stating:
            for word in history.unfinished_words(field.words, finished.get(field.path, ())):
                self._wrong(key, f"{where}words: {field.path}: a run in the state {word} is not finished")
        if "runs" in fed and (stating or not empty) and not any(finished.get(one.path) for one in stating):
            self._wrong(key, f"{where}words: expected the words of finished runs, of the field that fills runs.state")

    def _lost(self, section: Key, value: object) -> Mapping[str, DeclaredLoss]:
        """Return the losses by name, by the paths of their fields."""
        key: Key = (*section, "lost")
        losses: dict[str, DeclaredLoss] = {}
        for path, held, place in _losses(self._table(key, value), "", key):
            where = f"lost {path} of {_label(section)}: "
            stated = held if isinstance(held, dict) else {"reason": held}
            self._known_keys(place, stated, ("reason", "unless"), where)
            reason, unless = stated["reason"], stated.get("unless")
            if not isinstance(reason, str) or not reason.strip() or not reason.isprintable():
                self._wrong(place, f"{where}expected the reason, in a line")
            if unless is not None and type(unless) not in (str, int, float, bool):
                self._wrong(place, f"{where}unless: expected a text, a number or a bool")
            if path == "_id":
                self._wrong(place, f"{where}the _id is always kept as the source id")
            self._check_depth(path, place, where)
            losses[path] = DeclaredLoss(str(reason), unless)
        return losses

    def _tables(self, key: Key, value: object) -> tuple[str, ...]:
        where, place = f"collection {_label(key)}: tables: ", (*key, "tables")
        if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
            self._wrong(place, f"{where}expected a list of table names")
            return ()
        if len(set(value)) < len(value):
            self._wrong(place, f"{where}a table stands twice")
        known: list[str] = []
        for table in dict.fromkeys(value):
            if table not in self._tables_fed:
                self._wrong(place, f"{where}unknown table {table}{nearest(table, list(self._tables_fed))}")
            # the columns are checked against the table that is meant, so that their own mistakes are reported too
            close = difflib.get_close_matches(table, list(self._tables_fed), n=1)
            known += [table] if table in self._tables_fed else close
        for table in known[1:]:
            if self._target is None and table not in tables.FURTHER and table in value:
                self._wrong(place, f"{where}{table} can only stand first")
        return tuple(dict.fromkeys(known))

    def _fields(self, section: Key, fed: Sequence[str], held: Mapping[str, Any]) -> Iterator[Field]:
        filled = _Filled()
        tenants: list[str] = []
        for path, options, key in _leaves(held, "", (*section, "fields")):
            where = f"field {path} of {_label(section)}: "
            if not isinstance(options, dict):
                self._wrong(key, f'{where}expected {{ to = "table.column" }}')
                continue
            field = self._field(path, fed, options, key, where)
            if field is None:
                continue
            for column in field.columns:
                other = filled.by(column)
                if other is not None:
                    self._wrong(key, f"{where}{column} is filled by the field {other} already")
                filled.add(column, path)
            if field.converter == "tenant":
                tenants.append(path)
                if len(tenants) > 1:
                    self._wrong(key, f"{where}the tenant is read from the field {tenants[0]} already")
            yield field
            if field.converter == "weekdays":
                yield self._weekday_time(field, held, key, where)
            elif field.converter == "clock-span":
                yield Field(path=field.time, columns=field.columns, converter="clock-end", time=path)

    def _weekday_time(self, field: Field, held: Mapping[str, Any], key: Key, where: str) -> Field:
        """Return the field that holds the time of day."""
        if field.time == "_id" or any(path == field.time for path, *_ in _leaves(held, "", ())):
            self._wrong(key, f"{where}time: the field {field.time} is mapped too")
        return Field(path=field.time, columns=field.columns, converter="weekday-time", time_format=field.time_format)

    def _field(self, path: str, fed: Sequence[str], options: Mapping[str, Any], key: Key, where: str) -> Field | None:
        before = len(self.mistakes)
        columns = self._columns(options.get("to", []), fed, key, where)
        named = options.get("as", _converter_of(columns[0], options) if columns else "tenant")
        if named not in _CONVERTERS:
            self._wrong(key, f"{where}unknown converter {named}{nearest(str(named), _CONVERTERS)}")
        if len(self.mistakes) > before:
            return None
        if bool(CONVERTERS[named].column_types) != bool(columns):
            expected = (
                f"{where}the converter {named} fills no column" if columns else f'{where}expected to = "table.column"'
            )
            self._wrong(key, expected)
            return None
        converter = CONVERTERS[named]
        if path == "_id" and converter.place == "fields":
            self._wrong(key, f"{where}the _id is always the source id: the converter {named} does not read it")
            return None
        if path != "_id" and converter.place == "_id":
            self._wrong(key, f"{where}the converter {named} reads the _id alone")
            return None
        self._known_keys(key, options, ("to", "as", *converter.options), where)
        self._check_converter(named, columns, key, where)
        if len(self.mistakes) > before:
            return None
        if "taken" in options and not options.get("expected"):
            self._wrong(key, f"{where}expected: expected what is said where the field is not taken")
        field = self._with_options(path, columns, named, options, key, where)
        if not field.taken:
            field = Field(path=path, converter="refused", expected=field.expected)
        return field if len(self.mistakes) == before else None

    def _check_converter(self, named: str, columns: Sequence[str], key: Key, where: str) -> None:
        if named == "reference" and len(columns) > 1:
            self._wrong(key, f"{where}a reference fills one column")
        for column in columns:
            if tables.member_of(column) and named != "json":
                self._wrong(
                    key, f"{where}a member of {column.rpartition('.')[0]} is filled by the converter json alone"
                )
                continue
            if tables.type_of(column) not in CONVERTERS[named].column_types:
                self._wrong(key, f"{where}the converter {named} does not fill {column} ({tables.type_of(column)})")
            elif tables.words_of(column) and named != "words":
                self._wrong(key, f"{where}{column} holds one word of a list: expected the converter words")

    def _columns(self, value: object, fed: Sequence[str], key: Key, where: str) -> tuple[str, ...]:
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
            self._wrong(key, f"{where}to: expected table.column, or a list of them")
            return ()
        return tuple(column for column in listed if self._is_column(column, fed, key, where))

    def _is_column(self, column: str, fed: Sequence[str], key: Key, where: str) -> bool:
        table, name = tables.split(column)
        if not fed:
            return False
        if table not in fed:
            self._wrong(
                key,
                f"{where}{table or 'the empty name'} is not among the tables of the collection{nearest(table, fed)}",
            )
            return False
        types = tables.types_of(table)
        name, dot, member = name.partition(".")
        if dot and (types.get(name) != "jsonb" or not member or "." in member):
            self._wrong(key, f"{where}column {column}: only a jsonb column has members, table.column.member")
            return False
        open_columns = [one for one in types if one not in tables.FILLED_BY_THE_TOOL]
        if name not in open_columns:
            why = "is filled by the tool" if name in types else "does not exist"
            hint = "" if name in types else nearest(name, open_columns)
            self._wrong(key, f"{where}column {column} {why}{hint}")
            return False
        if column in tables.FOLLOWING:
            self._wrong(key, f"{where}{column} follows from {tables.FOLLOWING[column]}")
            return False
        return True

    def _with_options(
        self, path: str, columns: tuple[str, ...], named: str, options: Mapping[str, Any], key: Key, where: str
    ) -> Field:
        for option, choices in _CHOICES.items():
            if option in options and options[option] not in choices:
                self._wrong(key, f"{where}{option}: expected one of {_listed(options[option], choices)}")
        self._check_type(named, options, key, where)
        self._check_types(named, options, key, where)
        self._check_names(path, options, key, where)
        spellings = self._words(columns, named, options, key, where)
        write_as = self._write_as(columns, spellings, options.get("write_as", {}), key, where)
        self._check_default(columns, options.get("default"), key, where)
        if named in ("cron", "cron-fields", "cron-field"):
            self._check_dialect(options.get("dialect"), key, where)
        if named == "reference" and not isinstance(options.get("collection"), str):
            self._wrong(key, f"{where}collection: expected the collection whose _id the field holds")
        if options.get("local"):
            self._check_local(columns, options, key, where)
        if "zone" in options:
            self._check_zone(options, key, where)
        if len(options.get("below", [None] * _BOTH)) != _BOTH:
            self._wrong(key, f"{where}below: expected {_WHAT['below']}")
        if named == "weekdays":
            options = {**options, "dialect": weekdays.DIALECT}
        given = {name: options[name] for name in (*_CHOICES, *_TYPES, "dialect", "collection") if name in options}
        given |= {name: tuple(options[name]) for name in _LISTS if isinstance(options.get(name), list)}
        return Field(
            path=path,
            columns=columns,
            converter=named,
            words=spellings,
            write_as=write_as,
            default=options.get("default"),
            **given,
        )

    def _check_type(self, named: str, options: Mapping[str, Any], key: Key, where: str) -> None:
        if named != "json" and options.get("type") in {*get_args(BsonType)} - {*get_args(NumberType)}:
            self._wrong(key, f"{where}type: expected one of {', '.join(get_args(NumberType))}")
        if named == "text" and options.get("type") and options.get("trim"):
            self._wrong(key, f"{where}trim: the documents hold numbers (type)")
        if named == "json" and options.get("type") and options.get("holds"):
            self._wrong(key, f"{where}type: the value is already a {options['holds']} (holds)")

    def _check_default(self, columns: Sequence[str], default: object, key: Key, where: str) -> None:
        if default is None:
            return
        if type(default) is not _python_type(columns[0]):
            self._wrong(key, f"{where}default: expected a value of {columns[0]} ({tables.type_of(columns[0])})")
        elif type(default) is int and not _fits(columns[0], default):
            least, most = tables.bounds_of(columns[0])
            self._wrong(key, f"{where}default: expected a number from {least} to {most}")
        elif isinstance(default, str) and not _fits(columns[0], default):
            listed = ", ".join(tables.words_of(columns[0]) or ("a text",))
            self._wrong(key, f"{where}default: expected a word of {columns[0]}: {listed}")
        elif not all(_fits(column, default) for column in columns):
            self._wrong(key, f"{where}default: expected a value of {', '.join(columns)}")

    def _check_names(self, path: str, options: Mapping[str, Any], key: Key, where: str) -> None:
        named = [options.get(option) for option in ("number", "unit_from", "time")]
        lists = [options[option] for option in _LISTS if isinstance(options.get(option), list)]
        listed = [one for some in lists for one in some]
        for name in (path, *named, *listed):
            if isinstance(name, str) and _UNREADABLE.search(name):
                self._wrong(key, f"{where}a name with a quotation mark, \\ or a control character is not read")
            elif isinstance(name, str):
                self._check_depth(name, key, where)

    def _check_depth(self, path: str, key: Key, where: str) -> None:
        if path.count(".") >= DEEPEST:
            self._wrong(key, f"{where}expected a path of at most {DEEPEST} members")

    def _check_types(self, named: str, options: Mapping[str, Any], key: Key, where: str) -> None:
        for option in CONVERTERS[named].needed:
            if not options.get(option):
                self._wrong(key, f"{where}{option}: expected {_WHAT[option]}")
        for option, kinds in _TYPES.items():
            if option in options and type(options[option]) not in kinds:
                self._wrong(key, f"{where}{option}: expected {_WHAT[option]}")
        for option in _LISTS:
            value = options.get(option)
            if value and (not isinstance(value, list) or not all(isinstance(one, str) and one for one in value)):
                self._wrong(key, f"{where}{option}: expected {_WHAT[option]}")
            elif value and len(set(value)) < len(value):
                self._wrong(key, f"{where}{option}: a name stands twice")
        self._check_values(options, key, where)

    def _check_values(self, options: Mapping[str, Any], key: Key, where: str) -> None:
        fixed = options.get("fixed")
        if isinstance(fixed, dict) and not all(isinstance(one, str) for one in fixed.values()):
            self._wrong(key, f"{where}fixed: expected {_WHAT['fixed']}")
        begins = options.get("begins", "")
        if isinstance(begins, str) and re.fullmatch("(?:[0-9a-f]{2})*", begins) is None:
            self._wrong(key, f"{where}begins: expected {_WHAT['begins']}")
        if options.get("write_default") and "default" not in options:
            self._wrong(key, f"{where}written: expected a default, which it says is written")
        factor, add = options.get("factor"), options.get("add")
        if factor == 0:
            self._wrong(key, f"{where}factor: expected a number other than 0")
        for option, value in (("factor", factor), ("add", add)):
            if isinstance(value, float) and not math.isfinite(value):
                self._wrong(key, f"{where}{option}: expected a finite number")

    def _check_local(self, columns: Sequence[str], options: Mapping[str, Any], key: Key, where: str) -> None:
        if not all(column.startswith("triggers.") for column in columns):
            self._wrong(key, f"{where}local: expected a column of triggers, which keep the zone")
        if str(options.get("time_format")).endswith("Z"):
            self._wrong(key, f"{where}local: a time with Z is one in UTC")
        if options.get("encoding", "date") != "date":
            self._wrong(key, f"{where}local: expected a BSON date; other encodings say what they mean")

    def _check_zone(self, options: Mapping[str, Any], key: Key, where: str) -> None:
        if options.get("local") or options.get("encoding", "date") != "date":
            self._wrong(
                key, f"{where}zone: expected a BSON date, which is not local; other encodings say what they mean"
            )
        try:
            cron.zone(str(options["zone"]))
        except cron.ZoneError as error:
            self._wrong(key, f"{where}zone: {error}{near(str(options['zone']), cron.zone_names())}")

    def _check_dialect(self, dialect: object, key: Key, where: str) -> None:
        if not isinstance(dialect, str) or dialect not in cron.DIALECTS:
            self._wrong(key, f"{where}dialect: expected one of {_listed(dialect, tuple(cron.DIALECTS))}")
            return
        try:
            cron.validate(dialect, "0 0 * * *", None)
        except cron.UnavailableError as error:
            self._wrong(key, f"{where}{error}")
        except cron.CronError:
            pass  # a dialect of another form, whose library is there

    def _check_theirs(
        self, column: str, given: Mapping[str, Any], options: Mapping[str, Any], key: Key, where: str
    ) -> None:
        """Report words of the documents that are no numbers where the documents hold numbers, and words left open."""
        self._check_numbers(given, options, key, where)
        left_open = [word for word, ours in given.items() if ours == OPEN]
        if left_open:
            listed = tables.words_of(column) or (f"values of {column} ({tables.type_of(column)})",)
            self._wrong(key, f"{where}words: say what is meant by {', '.join(left_open)}; known: {', '.join(listed)}")

    def _check_numbers(self, given: Mapping[str, Any], options: Mapping[str, Any], key: Key, where: str) -> None:
        for word in given if "type" in options else ():
            if _WHOLE.fullmatch(word) is None:
                self._wrong(key, f"{where}words: the documents hold numbers (type): expected one in place of {word}")

    def _words(
        self, columns: Sequence[str], named: str, options: Mapping[str, Any], key: Key, where: str
    ) -> Mapping[str, Any]:
        if named == "period":
            return self._units(options, key, where)
        if named == "weekdays":
            return self._weekdays(options, key, where)
        if named != "words":
            return {}
        known = tables.words_of(columns[0])
        given = options.get("words", {word: word for word in known or ()})
        if not isinstance(given, dict) or not given:
            self._wrong(key, f'{where}words: expected {{ theirs = "ours" }}')
            return {}
        if options.get("allow_unknown") and ("type" in options or not all(map(_takes_any_text, columns))):
            self._wrong(key, f"{where}keep: expected a column that takes any text")
        self._check_theirs(columns[0], given, options, key, where)
        for column in columns:
            self._check_words(column, given, key, where)
        return given

    def _check_words(self, column: str, given: Mapping[str, Any], key: Key, where: str) -> None:
        for word in _distinct(given):
            if word == OPEN or _fits(column, word):
                continue
            listed = tables.words_of(column)
            if not listed:
                self._wrong(key, f"{where}words: expected values of {column} ({tables.type_of(column)})")
                break
            self._wrong(key, f"{where}words: {column} has no word {word}{nearest(str(word), listed)}")

    def _write_as(
        self, columns: Sequence[str], spellings: Mapping[str, Any], given: object, key: Key, where: str
    ) -> Mapping[str, str]:
        """Return the words that are written for values of the column that no word stands for."""
        if not isinstance(given, dict) or not all(isinstance(word, str) for word in given.values()):
            self._wrong(key, f'{where}write_as: expected {{ ours = "theirs" }}, numbers in quotes too')
            return {}
        listed = tables.words_of(columns[0]) if columns else ()
        worded = {value for value in spellings.values() if isinstance(value, str)}
        for value, word in given.items():
            if listed and value not in listed:
                self._wrong(key, f"{where}write_as: {columns[0]} has no word {value}{nearest(value, listed)}")
            elif value in worded:
                self._wrong(key, f"{where}write_as: {value} has a word already")
            if word not in spellings:
                self._wrong(key, f"{where}write_as: {word} is not among the words{nearest(word, list(spellings))}")
        return given

    def _weekdays(self, options: Mapping[str, Any], key: Key, where: str) -> Mapping[str, Any]:
        """Return the words for days; report options that contradict each other."""
        if "first" in options:
            for other in ("words", "type"):
                if other in options:
                    self._wrong(key, f"{where}{other}: the documents hold flags (first)")
            if options.get("holds", "flag") not in ("text", "flag"):
                self._wrong(key, f"{where}holds: expected one of text, flag")
            return {}
        if "holds" in options:
            self._wrong(key, f"{where}holds: expected first, the day of the first flag")
        given = options.get("words", {day: day for day in WEEKDAYS})
        if not isinstance(given, dict) or not given:
            self._wrong(key, f'{where}words: expected {{ theirs = "a day" }}')
            return {}
        self._check_numbers(given, options, key, where)
        for day in _distinct(given):
            if day not in WEEKDAYS:
                self._wrong(key, f"{where}words: no day {day}{nearest(str(day), WEEKDAYS)}")
        return given

    def _units(self, options: Mapping[str, Any], key: Key, where: str) -> Mapping[str, Any]:
        units = get_args(Unit)
        given = options.get("words", {unit: unit for unit in units})
        if not isinstance(given, dict) or not given:
            self._wrong(key, f'{where}words: expected {{ theirs = "a unit" }}')
            return {}
        for unit in _distinct(given):
            if unit not in units:
                self._wrong(key, f"{where}words: no unit {unit}{nearest(str(unit), units)}")
        return given

    def _choices(
        self, section: Key, fed: Sequence[str], filled: Sequence[str], held: object
    ) -> Mapping[str, tuple[Case, ...]]:
        choices: dict[str, tuple[Case, ...]] = {}
        place: Key = (*section, "choices")
        for column, value, key in _constant_leaves(self._table(place, held), place):
            where = f"choice {column} of {_label(section)}: "
            if not self._is_column(column, fed, key, where):
                continue
            if column in filled:
                self._wrong(key, f"{where}a field or a constant fills it already")
            if column.removeprefix("triggers.") in constraints.CAUSES:
                self._wrong(key, f"{where}what makes a trigger fire comes from a field")
            if not isinstance(value, list) or not value or not all(isinstance(one, dict) for one in value):
                self._wrong(key, f'{where}expected a list of {{ if = "field", value = … }}')
                continue
            choices[column] = tuple(self._case(column, one, key, where) for one in value)
        return choices

    def _case(self, column: str, held: Mapping[str, Any], key: Key, where: str) -> Case:
        self._known_keys(key, held, ("if", "equals", "value", *([OPTION] if self._target else [])), where)
        field, equals, value = held.get("if", ""), held.get("equals"), held.get("value")
        if not isinstance(field, str):
            self._wrong(key, f"{where}if: expected the path of a field")
        else:
            self._check_depth(field, key, f"{where}if: ")
        if equals is not None and (not field or type(equals) not in (str, int, float, bool)):
            self._wrong(key, f"{where}equals: expected a text, a number or a bool, beside if")
        if not _fits(column, value):
            expected = tables.words_of(column) or (f"a value of type {tables.type_of(column)}",)
            self._wrong(key, f"{where}value: expected {', '.join(expected)}")
        return Case(field=str(field), equals=equals, value=value, option=held.get(OPTION, ""))

    def _constants(
        self, section: Key, fed: Sequence[str], fields: Sequence[Field], held: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        filled = {column: field.path for field in fields for column in field.columns}
        constants: dict[str, Any] = {}
        for column, value, key in _constant_leaves(held, (*section, "constants")):
            where = f"constant {column} of {_label(section)}: "
            if not self._is_column(column, fed, key, where):
                continue
            if column in filled:
                self._wrong(key, f"{where}the field {filled[column]} fills it already")
            if column.removeprefix("triggers.") in constraints.CAUSES:
                self._wrong(key, f"{where}what makes a trigger fire comes from a field")
            elif not _fits(column, value):
                expected = tables.words_of(column) or (f"a value of type {tables.type_of(column)}",)
                opened = f' in place of "{OPEN}"' if value == OPEN else ""
                self._wrong(key, f"{where}expected {', '.join(expected)}{opened}")
            constants[column] = value
        return constants

    def _rows(
        self, section: Key, fed: Sequence[str], fields: Sequence[Field], held: Mapping[str, Any]
    ) -> Mapping[str, tuple[str, ...]]:
        paths = {field.path: None for field in fields}
        conditions: dict[str, tuple[str, ...]] = {}
        for table, value in held.items():
            key: Key = (*section, "rows", table)
            where = f"rows {table} of {_label(section)}: "
            if table not in fed[1:]:
                self._wrong(key, f"{where}expected a table after the first{nearest(table, fed[1:])}")
            listed = [value] if isinstance(value, str) else value
            if not isinstance(listed, list) or not listed or not all(isinstance(one, str) for one in listed):
                self._wrong(key, f"{where}expected a list of fields of the collection")
                continue
            for path in listed:
                if path not in paths:
                    self._wrong(key, f"{where}{path} is not among the fields{nearest(path, paths)}")
            conditions[table] = tuple(path for path in listed if path in paths)
        return conditions

    def _check_columns(self, section: Key, fed: Sequence[str], fields: Sequence[Field], others: Sequence[str]) -> None:
        """Report columns that may not be null and that nothing fills, and paths that lie in one another.

        ``others``: the columns that are filled otherwise than by fields.
        """
        if any(key[: len(section)] == section for key, _ in self.mistakes):
            return  # what is missing may be what was written wrongly
        filled = {*_columns_filled(fields), *others}
        key, collection = section, _label(section)
        if "triggers.timezone" in filled and any(field.local for field in fields):
            self._wrong(key, f"collection {collection}: local: triggers.timezone is filled already")
        for table in fed:
            for column in sorted(tables.needed_columns(table)):
                implied = any(parent in fed for parent in tables.parents_of(f"{table}.{column}"))
                if f"{table}.{column}" not in filled and not implied:
                    self._wrong(key, f"collection {collection}: {table}.{column} may not be null, and nothing fills it")
            if table == "triggers" and not {f"triggers.{one}" for one in constraints.CAUSES} & filled:
                causes = ", ".join(f"triggers.{one}" for one in constraints.CAUSES)
                self._wrong(key, f"collection {collection}: a trigger needs a field for one of {causes}")
        self._check_paths(key, fields)

    def _check_paths(self, key: Key, fields: Sequence[Field]) -> None:
        collection = _label(key)
        paths = Counter(path for field in fields for path in (field.path, *field.also))
        for path in sorted({path for field in fields for path in field.also if paths[path] > 1}):
            self._wrong((*key, "fields", path), f"collection {collection}: also: {path} is read twice")
        for path in sorted(paths):
            outer = next((other for other in _outer(path) if other in paths), None)
            if outer is not None:
                place = (*key, "fields", path)
                self._wrong(
                    place, f"field {path} of {collection}: it lies within the field {outer}, which is mapped too"
                )

    def _check_references(self, collections: Sequence[Mapped], left_out: Mapping[str, str]) -> None:
        feeds = {one.name: [table for shape in one.shapes() for table in shape.tables] for one in collections}
        for one in collections:
            for section, fields in _sections(one):
                for field in fields:
                    if field.collection:
                        self._check_reference(section, field, feeds, left_out)
                        self._check_by(section, field, collections)

    def _check_by(self, section: Key, field: Field, collections: Sequence[Mapped]) -> None:
        """Report a field by which documents cannot be named, or by which other references do not name them."""
        key: Key = (*section, "fields", field.path)
        where = f"field {field.path} of {_label(section)}: by: "
        every = [(one.name, shape) for one in collections for shape in one.shapes()]
        target = tables.referred_table(field.columns[0])
        if field.by and field.id_type is not None:
            self._wrong(key, f"{where}id_type says how an _id is written")
        feeding = [
            {inner.path for inner in shape.fields} - {"_id"}
            for name, shape in every
            if name == field.collection and target in shape.tables
        ]
        if field.by and not all(field.by in paths for paths in feeding):
            known = sorted(set().union(*feeding))
            self._wrong(key, f"{where}{field.collection} has no field {field.by}{nearest(field.by, known)}")
        others = {inner.by for _, shape in every for inner in shape.fields if inner.collection == field.collection}
        if len(others) > 1:
            listed = ", ".join(sorted(one or "_id" for one in others))
            self._wrong(key, f"{where}all references to {field.collection} must use one field, not {listed}")

    def _check_reference(
        self, section: Key, field: Field, feeds: Mapping[str, Sequence[str]], left_out: Mapping[str, str]
    ) -> None:
        key: Key = (*section, "fields", field.path)
        target = tables.referred_table(field.columns[0])
        where = f"field {field.path} of {_label(section)}: "
        if not target:
            self._wrong(key, f"{where}{field.columns[0]} is no reference to a row")
        elif field.collection in left_out:
            self._wrong(key, f"{where}the collection {field.collection} is left out")
        elif field.collection not in feeds:
            self._wrong(key, f"{where}no collection {field.collection}{nearest(field.collection, list(feeds))}")
        elif target not in feeds[field.collection]:
            self._wrong(key, f"{where}documents of {field.collection} make no row of {target}")


def _listed(value: object, known: Sequence[str]) -> str:
    """Return the values that are known, and the nearest one to another value if one is near."""
    return ", ".join(known) + near(str(value), known)


def _distinct(words: Mapping[str, Any]) -> list[Any]:
    """Return the values of words, each once; TOML may have put a list or a table there."""
    return list({(type(word), str(word)): word for word in words.values()}.values())


def _label(section: Key) -> str:
    """Return how a message names a collection, or a kind of its documents."""
    return "/".join(section[1::2])


def _sections(mapped: Mapped) -> Iterator[tuple[Key, tuple[Field, ...]]]:
    """Yield the section and the fields of a collection, or those of its kinds."""
    section: Key = ("collections", mapped.name)
    if not mapped.kinds:
        yield section, mapped.fields
    for name, kind in mapped.kinds.items():
        yield (*section, "kinds", name), kind.fields


def _columns_filled(fields: Sequence[Field]) -> Iterator[str]:
    return (column for field in fields for column in field.columns)


class _Filled:
    """Columns, and members of columns, with the path of the field that fills each."""

    def __init__(self) -> None:
        self._paths: dict[str, str] = {}
        self._within: dict[str, str] = {}
        """Column to the path of the first field that fills a member of it."""

    def add(self, column: str, path: str) -> None:
        """Note the field of a column; the first one of a column stays."""
        self._paths.setdefault(column, path)
        for outer in _outer(column):
            self._within.setdefault(outer, path)

    def by(self, column: str) -> str | None:
        """Return the path of a field that fills a column, a member of it, or what it is a member of."""
        around = (self._paths.get(outer) for outer in _outer(column))
        return self._paths.get(column) or self._within.get(column) or next((path for path in around if path), None)


def _outer(path: str) -> Iterator[str]:
    """Yield the paths that lie around a path, the nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path


def _takes_any_text(column: str) -> bool:
    return not tables.words_of(column) and tables.type_of(column) == "text"


def _converter_of(column: str, options: Mapping[str, Any]) -> str:
    """Return the converter of a field for which the mapping names none."""
    table, name = tables.split(column)
    if tables.words_of(column) or "words" in options:
        return "words"
    if table == "triggers" and name in ("cron_expression", "timezone"):
        return "cron" if name == "cron_expression" else "zone"
    if name.endswith("_ms"):
        return "duration"
    kind = tables.type_of(column)
    return next(name for name, converter in CONVERTERS.items() if kind in converter.column_types)


def _python_type(column: str) -> type | None:
    """Return the type of the values of a column that a mapping file may state; None: it states none."""
    kind = tables.type_of(column)
    return int if kind.startswith("int") else {"text": str, "bool": bool}.get(kind)


def _fits(column: str, value: object) -> bool:
    """Whether a constant can stand in a column; ``OPEN`` stands for what a draft left open."""
    if value == OPEN:
        return False
    if listed := tables.words_of(column):
        return value in listed
    kind = tables.type_of(column)
    if kind.startswith("int"):
        least, most = tables.bounds_of(column)
        return type(value) is int and least <= value <= most
    return type(value) is {"text": str, "bool": bool}.get(kind) and (type(value) is not str or "\0" not in value)


def _leaves(held: Mapping[str, Any], prefix: str, key: Key) -> Iterator[tuple[str, Any, Key]]:
    """Yield path, options and key of each field; ``a.b = {…}`` and ``"a.b" = {…}`` are the same field."""
    for name, value in held.items():
        path = f"{prefix}{name}"
        is_inner = isinstance(value, dict) and value and all(isinstance(inner, dict) for inner in value.values())
        if is_inner and "words" not in value:
            yield from _leaves(value, f"{path}.", (*key, name))
        else:
            yield path, value, (*key, name)


def _lists(held: Mapping[str, Any], prefix: str, key: Key) -> Iterator[tuple[str, Any, Key]]:
    """Yield path, list and key; ``a.b = […]`` and ``"a.b" = […]`` are the same."""
    for name, value in held.items():
        if isinstance(value, dict):
            yield from _lists(value, f"{prefix}{name}.", (*key, name))
        else:
            yield f"{prefix}{name}", value, (*key, name)


def _losses(held: Mapping[str, Any], prefix: str, key: Key) -> Iterator[tuple[str, Any, Key]]:
    """Yield path, reason and key; ``a.b = "…"`` and ``"a.b" = "…"`` are the same."""
    for name, value in held.items():
        if isinstance(value, dict) and "reason" not in value:
            yield from _losses(value, f"{prefix}{name}.", (*key, name))
        else:
            yield f"{prefix}{name}", value, (*key, name)


def _constant_leaves(held: Mapping[str, Any], key: Key) -> Iterator[tuple[str, Any, Key]]:
    """Yield column, value and key; ``schedules.status = …`` and ``"schedules.status" = …`` are the same."""
    for name, value in held.items():
        if isinstance(value, dict):
            for inner, constant in value.items():
                yield f"{name}.{inner}", constant, (*key, name, inner)
        else:
            yield name, value, (*key, name)


def _lines(text: str) -> Mapping[Key, int]:
    """Return the line of each key, whose names are taken apart at their dots.

    A key inside an inline table has the line of the table's own key.
    """
    lines: dict[Key, int] = {}
    header: Key = ()
    for number, line in enumerate(text.splitlines(), 1):
        match = _HEADER.match(line)
        if match:
            header = _parts(match["path"])
            lines.setdefault(header, number)
            continue
        match = _ASSIGNMENT.match(line)
        if match:
            lines.setdefault((*header, *_parts(match["path"])), number)
    return lines


def _parts(path: str) -> Key:
    names = (match["double"] or match["single"] or match["bare"] or "" for match in _PART.finditer(path))
    return _flat(names)


def _flat(names: Iterable[str]) -> Key:
    return tuple(part for name in names for part in name.split("."))


def _line_of(lines: Mapping[Key, int], key: Key) -> int:
    """Return the line of a key, else of the nearest key around it."""
    flat = _flat(key)
    return next((lines[flat[:end]] for end in range(len(flat), 0, -1) if flat[:end] in lines), 1)
