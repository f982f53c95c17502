"""Pickles read without code of the application: what is not known to be plain data becomes a stand-in.

A global in a pickle is a class or a function by name. Those of ``KNOWN`` and of the library itself are the real ones.
Any other is a class made here under that name: no module is imported for it, and what the pickle calls it with is kept
as data. ``loads`` and ``dumps`` take the place of those of ``pickle`` in a module of the library.
"""

from __future__ import annotations

import importlib
import io
import pickle
import types
from typing import Any, Callable

KNOWN = frozenset(
    {
        "datetime.datetime",
        "datetime.date",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "uuid.UUID",
        "collections.OrderedDict",
        "collections.deque",
        "zoneinfo.ZoneInfo",
        "pytz._p",
        "pytz._UTC",
        "pytz.FixedOffset",
        "pytz._FixedOffset",
        "dateutil.tz.tz.tzutc",
        "dateutil.tz.tz.tzoffset",
        "copyreg._reconstructor",
        "_codecs.encode",
    }
    | {f"builtins.{one.__name__}" for one in (set, frozenset, bytearray, complex, list, dict, tuple, object)}
)
"""Real classes and functions: plain data, zones, and what pickles of the protocols 0 to 2 call for them."""
RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg"}


class StandInMeta(type):
    """The class of stand-ins."""

    stands_for: str


def find_stand_in(name: str) -> Any:
    """Return the stand-in of a name; the same one each time."""
    if name not in _made:
        _made[name] = StandInMeta(name.rpartition(".")[2], (StandIn,), {"stands_for": name})
    return _made[name]


_made: dict[str, Any] = {}


class StandIn:
    """An object of a class that is not loaded: what its pickle made it of."""

    stands_for = ""
    arguments: Any = ()
    named: Any = None
    state: Any = None
    items: Any = ()
    pairs: Any = ()

    def __new__(cls, *arguments: Any, **named: Any) -> StandIn:  # noqa: PYI034 - Self is of Python 3.11
        """Keep the arguments; nothing is called."""
        made = object.__new__(cls)
        made.arguments, made.named = arguments, named or None
        return made

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Accept what ``__new__`` has kept."""

    def __setstate__(self, state: Any) -> None:
        """Keep the state."""
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an item."""
        self.items = (*self.items, item)

    def extend(self, items: Any) -> None:
        """Keep items."""
        self.items = (*self.items, *items)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep a pair."""
        self.pairs = (*self.pairs, (key, value))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Keep that it was called; a pickle may call what an earlier call gave."""
        return find_stand_in(self.stands_for + "()")(self, *arguments, **named)

    def __reduce__(self) -> Any:
        """Return the function, and its arguments, that makes the same object again."""
        contents = (self.arguments, self.named, self.state, self.items, self.pairs)
        return rebuild, (self.stands_for, contents)


def rebuild(name: str, contents: Any) -> Any:
    """Return the object of a stand-in from what ``__reduce__`` gave."""
    made = object.__new__(find_stand_in(name))
    made.arguments, made.named, made.state, made.items, made.pairs = contents
    return made


def attribute(owner: Any, name: str) -> Any:
    """Return the attribute of the class ``ZoneInfo`` that pickles of zones take; nothing else is looked up."""
    zones = importlib.import_module("zoneinfo")
    if owner is zones.ZoneInfo and name == "_unpickle":
        return owner._unpickle
    return find_stand_in("builtins.getattr")(owner, name)


class Unpickler(pickle.Unpickler):
    """Reads a pickle; ``library``: names of the library's own classes that may be loaded."""

    def __init__(self, data: bytes, library: frozenset[str]) -> None:
        super().__init__(io.BytesIO(data))
        self._library = library

    def find_class(self, module: str, name: str) -> Any:
        """Return the real class or function of a known name, a stand-in of any other."""
        module = RENAMED.get(module, module)
        full = module + "." + name
        if full == "builtins.getattr":
            return attribute
        if module == __name__ and name in ("rebuild", "find_stand_in"):
            return globals()[name]
        if full not in KNOWN and full not in self._library:
            return find_stand_in(full)
        member = importlib.import_module(module)
        for part in name.split("."):
            member = getattr(member, part)
        return member


class Pickler(pickle.Pickler):
    """Writes a pickle, also of stand-ins; only ``Unpickler`` can read these."""

    def reducer_override(self, value: Any) -> Any:
        """Write a stand-in class as its name."""
        if isinstance(value, StandInMeta):
            return find_stand_in, (value.stands_for,)
        return NotImplemented


def pickles(library: frozenset[str]) -> Any:
    """Return the stand-in of the module ``pickle`` for a module of the library."""

    def loads(data: Any, **_: Any) -> Any:
        return Unpickler(bytes(data), library).load()

    def dumps(value: Any, protocol: int | None = None, **_: Any) -> bytes:
        stream = io.BytesIO()
        Pickler(stream, protocol).dump(value)
        return stream.getvalue()

    names = {"loads": loads, "dumps": dumps, "HIGHEST_PROTOCOL": pickle.HIGHEST_PROTOCOL}
    return types.SimpleNamespace(**names, PickleError=pickle.PickleError, DEFAULT_PROTOCOL=pickle.DEFAULT_PROTOCOL)


def plain(value: Any) -> Any:  # noqa: PLR0911 - one for each kind of value
    """Return any value as JSON that is equal for equal values: types without a form in JSON are objects of one member.

    An object of a class that is not known is its state, never its ``repr``.
    """
    if value is None or type(value) in {bool, int, str}:
        return value
    if isinstance(value, StandInMeta):
        return {"global": value.stands_for}
    if isinstance(value, (type, types.BuiltinFunctionType, types.FunctionType)):
        return {"global": f"{value.__module__}.{value.__qualname__}"}
    if isinstance(value, StandIn):
        kept = (value.arguments, value.named, value.state, value.items, value.pairs)
        return {"object": value.stands_for, "kept": [plain(part) for part in kept]}
    form = _FORMS.get(type(value))
    if form is not None:
        return {type(value).__name__: form(value)}
    zone = _zone(value)
    if zone is not None:
        return {"zone": zone}
    reduced = value.__reduce_ex__(2)  # class and arguments, state: of a class of the library
    return {
        "object": f"{type(value).__module__}.{type(value).__name__}",
        "state": [plain(part) for part in reduced[1:3]],
    }


def _zone(value: Any) -> str | None:
    for attribute_name in ("key", "zone"):  # zoneinfo, pytz
        name = getattr(value, attribute_name, None)
        if isinstance(name, str) and hasattr(value, "utcoffset"):
            return name
    return str(value) if hasattr(value, "utcoffset") and hasattr(value, "tzname") else None


def _pairs(value: Any) -> Any:
    return [[plain(key), plain(inner)] for key, inner in value.items()]


def _sequence(value: Any) -> Any:
    return [plain(inner) for inner in value]


def _unordered(value: Any) -> Any:
    return sorted((plain(inner) for inner in value), key=repr)


def _time(value: Any) -> Any:
    return [value.isoformat(), None if value.tzinfo is None else plain(value.tzinfo)]


def _forms() -> dict[type, Callable[[Any], Any]]:
    collections, dates = importlib.import_module("collections"), importlib.import_module("datetime")
    return {
        bytearray: lambda value: value.hex(),
        bytes: lambda value: value.hex(),
        complex: repr,
        dict: _pairs,
        float: repr,
        frozenset: _unordered,
        list: _sequence,
        set: _unordered,
        tuple: _sequence,
        collections.OrderedDict: _pairs,
        collections.deque: _sequence,
        dates.date: str,
        dates.datetime: _time,
        dates.time: _time,
        dates.timedelta: lambda value: [value.days, value.seconds, value.microseconds],
        importlib.import_module("decimal").Decimal: str,
        importlib.import_module("uuid").UUID: str,
    }


_FORMS = _forms()
