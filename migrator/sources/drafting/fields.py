"""What a sample of documents holds at each field path: types, words, times, cron lines."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from bson.binary import Binary
from bson.objectid import ObjectId

from migrator import cron
from migrator.values import document as documents
from migrator.values import times
from migrator.values.document import Undecodable, type_name

DEPTH: Final = 3
"""Levels of documents inside documents that are looked at."""
MAX_FIELDS: Final = 300
MAX_WORDS: Final = 20
"""Most different values of a field that holds a word of a list."""
LONGEST_WORD: Final = 40
MAX_LINES: Final = 100
"""Different cron lines of a field that are looked at."""
MAX_IDS: Final = 100
"""Different values of a field that are looked up as ids."""
CRON_SHARE: Final = 0.5
"""Share of a field's texts that must be cron lines."""
JSON_SHARE: Final = 0.8
"""Share of a field's texts that must hold a JSON object or array."""
TIME_SHARE: Final = 0.8
"""Share of a field's texts or numbers that must be times."""
DIALECTS: Final = ("debian", "cronos", "agenda", "croner", "robfig", "quartz")
"""Dialects that a draft proposes, the first that takes most lines; none needs a library."""
_SINCE_1970: Final = (("seconds", 5e8, 5e9), ("milliseconds", 5e11, 5e12), ("microseconds", 5e14, 5e15))
"""Encoding of a number, and the numbers that are times of the years 1985 to 2128 by it."""
_JAVASCRIPT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
"""A time as JavaScript writes it."""
_NAIVE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?$")
_FIELDS: Final = (5, 6, 7)
_NUMBERS: Final = frozenset({"int", "long", "double"})


class SampledField:
    """What a sample holds at one path."""

    def __init__(self) -> None:
        self.documents = 0
        self.types: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        """Short texts; of more than ``MAX_WORDS`` the further ones are not counted."""
        self.codes: Counter[int] = Counter()
        """Whole numbers, as ``words``."""
        self.lines: Counter[str] = Counter()
        """Texts that some dialect of cron takes."""
        self.ids: dict[Any, None] = {}
        """Values that may be the ``_id`` of another document."""
        self.numbers: list[float] = []
        self.naive = 0
        """Texts that are times without an offset, in the way of ISO 8601."""
        self.text_lists = 0
        """Arrays that hold texts alone."""
        self._iso = self._zulu = self._line_count = self._json = self._spaced = 0

    def add(self, value: Any) -> None:  # noqa: ANN401 - any BSON value
        """Count the value of one more document."""
        self.documents += 1
        self.types[type_name(value)] += 1
        if isinstance(value, str):
            if len(value) <= LONGEST_WORD and len(self.words) <= MAX_WORDS:
                self.words[value] += 1
            self._iso += _is_iso(value)
            self._zulu += _JAVASCRIPT.fullmatch(value) is not None
            self.naive += _NAIVE.match(value) is not None
            self._add_line(value)
            self._add_json(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self.numbers.append(float(value))
            if len(self.codes) <= MAX_WORDS and value == value // 1:
                self.codes[int(value)] += 1
        elif isinstance(value, list):
            self.text_lists += all(isinstance(item, str) for item in value)
        if isinstance(value, str | int | ObjectId | Binary) and not isinstance(value, bool) and len(self.ids) < MAX_IDS:
            self.ids[value] = None

    def _add_line(self, value: str) -> None:
        line = value.strip()
        if line in self.lines or (len(self.lines) < MAX_LINES and _dialects_of(line)):
            self.lines[line] += 1
            self._line_count += 1
        elif len(self.lines) >= MAX_LINES:
            self._line_count += bool(_dialects_of(line))

    def _add_json(self, value: str) -> None:
        if value.startswith(("{", "[")):
            with suppress(ValueError, RecursionError):
                read = json.loads(value)
                self._json += 1
                self._spaced += (json.dumps(read) == value) - (json.dumps(read, separators=(",", ":")) == value)

    @property
    def kind(self) -> str:
        """The commonest type, null apart."""
        known = [(count, name) for name, count in self.types.items() if name != "null"]
        return max(known)[1] if known else "null"

    @property
    def filled(self) -> int:
        """How many documents hold something else than null."""
        return self.documents - self.types["null"]

    @property
    def is_json(self) -> bool:
        """Whether most texts hold a JSON object or array."""
        return self.kind == "string" and self._json > JSON_SHARE * self.types["string"]

    @property
    def is_spaced(self) -> bool:
        """Whether more texts of JSON are written with spaces, as Python writes them, than without."""
        return self._spaced > 0

    @property
    def is_cron(self) -> bool:
        """Whether most texts are cron lines."""
        return self.kind == "string" and self._line_count > CRON_SHARE * self.types["string"]

    @cached_property
    def dialects(self) -> tuple[str, ...]:
        """The dialects that take most of the cron lines, each as many."""
        taken: Counter[str] = Counter()
        for line, count in self.lines.items():
            taken.update(dict.fromkeys(_dialects_of(line), count))
        most = max(taken.values(), default=0)
        return tuple(name for name in DIALECTS if taken[name] == most)

    @property
    def is_time(self) -> bool:
        """Whether most values are times."""
        return self.encoding is not None

    @cached_property
    def encoding(self) -> str | None:
        """The encoding of a time; None for what is none."""
        if self.kind == "date":
            return "date"
        if self.kind == "string" and self._iso > TIME_SHARE * self.types["string"]:
            return "iso-z" if 2 * self._zulu > self._iso else "iso"
        numbers = [number for number in self.numbers if number]  # 0 stands for no time at all
        if self.kind in _NUMBERS and numbers:
            for name, least, most in _SINCE_1970:
                if sum(least <= number <= most for number in numbers) > TIME_SHARE * len(numbers):
                    return name
        return None

    @property
    def is_word(self) -> bool:
        """Whether it holds few different short texts, or few different whole numbers."""
        if self.kind == "string":
            return 0 < len(self.words) <= MAX_WORDS and sum(self.words.values()) == self.types["string"]
        is_repeated = len(self.codes) <= max(2, self.documents // 2)
        is_whole = sum(self.codes.values()) == len(self.numbers)
        return self.kind in _NUMBERS and 0 < len(self.codes) <= MAX_WORDS and is_repeated and is_whole

    @property
    def described(self) -> str:
        """The types and how many documents have each."""
        return ", ".join(f"{name} {count:,}" for name, count in self.types.most_common())


def fields_of(raws: Iterable[bytes]) -> dict[str, SampledField]:
    """Return field path to what the documents hold there; ``_id`` is one field, whatever it holds."""
    fields: dict[str, SampledField] = {}
    for raw in raws:
        with suppress(Undecodable):
            _walk(documents.decode(raw), "", 1, fields)
    return fields


def _walk(document: Mapping[str, Any], prefix: str, depth: int, fields: dict[str, SampledField]) -> None:
    for key, value in document.items():
        path = f"{prefix}{key}"
        if "." in key or not key or (path not in fields and len(fields) >= MAX_FIELDS):
            continue
        fields.setdefault(path, SampledField()).add(value)
        if isinstance(value, dict) and depth < DEPTH and path != "_id":
            _walk(value, f"{path}.", depth + 1, fields)


def _dialects_of(line: str) -> tuple[str, ...]:
    # some dialects also take a date, a single number or a word
    if not (line.startswith("@") or len(line.split()) in _FIELDS):
        return ()
    return tuple(name for name in DIALECTS if _is_taken(name, line))


def _is_taken(dialect: str, line: str) -> bool:
    try:
        cron.validate(dialect, line, None)
    except cron.CronError:
        return False
    return True


def _is_iso(text: str) -> bool:
    try:
        times.parse_iso(text)
    except ValueError:
        return False
    return True
