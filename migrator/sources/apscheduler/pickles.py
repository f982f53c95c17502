"""An inert reader of pickles: plain data out of opcodes. Nothing is imported, nothing is called, no object is made.

The standard library splits the bytes into opcodes (``pickletools``, which executes nothing). A global is a name here:
it must stand in ``ALLOWED``, and what a pickle would call it with becomes a record (``Made``) of the name and the
arguments. Everything else raises ``PickleRefusedError``: another global, an opcode that needs the program that wrote
the pickle, a pickle that is cut off or goes on after its end, and one beyond a limit. The limits bound the work that a
small pickle may cause: depth is counted without recursion, and values that are shared count each time they are reached.
"""

import io
import pickletools
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

LONGEST: Final = 16 * 1024 * 1024
"""Bytes of a pickle: no document of MongoDB is larger."""
MOST_OPCODES: Final = 500_000
MOST_VALUES: Final = 500_000
MOST_TEXT: Final = 64 * 1024 * 1024
"""Characters and bytes of all texts together, each counted as often as it is reached."""
DEEPEST: Final = 100
LONGEST_INTEGER: Final = 8 * 1024
"""Bits."""


class PickleRefusedError(ValueError):
    """A pickle that is not read; ``expected`` says what would have been read."""

    def __init__(self, expected: str) -> None:
        super().__init__(f"pickle: expected {expected}")
        self.expected = expected


class ImportRefusedError(PickleRefusedError):
    """A pickle that names a class or a function which is not in the list."""


class Global:
    """A class or a function by its name; nothing of it is loaded."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Table:
    """A ``dict``, as its pairs in their order; a key may be anything, and may repeat."""

    __slots__ = ("pairs",)

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def named(self) -> dict[str, Any]:
        """Return the members whose keys are texts; the last one of a name counts."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


class Made:
    """What a pickle would have made by calling ``name`` with ``arguments``: its state, items and pairs as they came."""

    __slots__ = ("arguments", "items", "name", "pairs", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []


_CRON: Final = "apscheduler.triggers.cron"
_TRIGGERS: Final = (
    f"{_CRON}.CronTrigger",
    *(
        f"{_CRON}.fields.{name}"
        for name in ("BaseField", "WeekField", "DayOfMonthField", "DayOfWeekField", "MonthField")
    ),
    *(f"{_CRON}.expressions.{name}Expression" for name in ("All", "Range", "MonthRange", "WeekdayRange")),
    *(f"{_CRON}.expressions.{name}Expression" for name in ("WeekdayPosition", "LastDayOfMonth")),
    "apscheduler.triggers.interval.IntervalTrigger",
    "apscheduler.triggers.date.DateTrigger",
    "apscheduler.triggers.calendarinterval.CalendarIntervalTrigger",
    "apscheduler.triggers.combining.AndTrigger",
    "apscheduler.triggers.combining.OrTrigger",
)
_ZONES: Final = (
    "datetime.timezone",
    "zoneinfo.ZoneInfo",
    "pytz._p",
    "pytz._UTC",
    "pytz.FixedOffset",
    "pytz._FixedOffset",
    "dateutil.tz.tz.tzutc",
    "dateutil.tz.tz.tzoffset",
)
_DATA: Final = (
    "datetime.datetime",
    "datetime.date",
    "datetime.time",
    "datetime.timedelta",
    "decimal.Decimal",
    "uuid.UUID",
    "collections.OrderedDict",
    "collections.deque",
    "collections.defaultdict",
    *(f"builtins.{name}" for name in ("set", "frozenset", "bytearray", "complex", "list", "dict", "tuple", "object")),
)
_GETATTR: Final = "builtins.getattr"
_ENCODE: Final = "_codecs.encode"
_RECONSTRUCTOR: Final = "copyreg._reconstructor"
UNPICKLE: Final = "zoneinfo.ZoneInfo._unpickle"
"""What ``getattr`` makes of the class of a zone, and of nothing else."""

ALLOWED: Final = frozenset({*_TRIGGERS, *_ZONES, *_DATA, _GETATTR, _ENCODE, _RECONSTRUCTOR})
"""Every global that a pickle may name, ``module.name``."""

_RENAMED: Final[Mapping[str, str]] = MappingProxyType({"__builtin__": "builtins", "copy_reg": "copyreg"})
"""Modules as Python 2 and pickles for it name them."""

_shown = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*").fullmatch
_LONGEST_NAME: Final = 100


def read(data: bytes) -> Any:  # noqa: ANN401 - any plain data
    """Return the data of a pickle: None, bool, int, float, str, bytes, list, tuple, and the records of this module.

    Raises ``PickleRefusedError``, and nothing else.
    """
    if len(data) > LONGEST:
        raise PickleRefusedError(f"at most {LONGEST} bytes")
    stream = io.BytesIO(data)
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.execute(opcode.name, argument)
    except PickleRefusedError:
        raise
    except (ValueError, OverflowError, Warning):
        # what pickletools finds: cut off, an unknown opcode, digits that are none
        raise PickleRefusedError("a whole pickle of the protocols 0 to 5") from None
    if stream.tell() != len(data):
        raise PickleRefusedError("nothing after the end of the pickle")
    value = machine.result()
    hold_limits(value)
    return value


class _Machine:
    """The stack machine that a pickle is written for, which keeps what it is told as data."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks under the marks that are set."""
        self._memo: dict[int, Any] = {}
        self._opcodes = 0
        self._made_text = 0
        """Characters and bytes of all texts that calls have made."""

    def execute(self, name: str, argument: Any) -> None:  # noqa: ANN401 - the argument of any opcode
        """Carry out one opcode."""
        self._opcodes += 1
        if self._opcodes > MOST_OPCODES:
            raise PickleRefusedError(f"at most {MOST_OPCODES} opcodes")
        if name in _PUSHED:
            if isinstance(argument, int) and argument.bit_length() > LONGEST_INTEGER:
                raise PickleRefusedError(f"integers of at most {LONGEST_INTEGER} bits")
            self._stack.append(argument)
        elif name in _FRESH:
            self._stack.append(_FRESH[name]())
        elif name in _MEMORISED:
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self._top()
        elif name in _RECALLED:
            if argument not in self._memo:
                raise _broken()
            self._stack.append(self._memo[argument])
        elif name in _STEPS:
            _STEPS[name](self, argument)
        elif name not in _PASSED:
            raise PickleRefusedError("no persistent id, no extension code and no buffer outside of the pickle")

    def result(self) -> Any:  # noqa: ANN401 - any plain data
        """Return the one value that is left."""
        if len(self._stack) != 1 or self._below:
            raise _broken()
        return self._stack[0]

    def _top(self) -> Any:  # noqa: ANN401 - any plain data
        if not self._stack:
            raise _broken()
        return self._stack[-1]

    def _pop(self) -> Any:  # noqa: ANN401 - any plain data
        if not self._stack:
            raise _broken()
        return self._stack.pop()

    def _above_mark(self) -> list[Any]:
        """Return what lies above the last mark, and take the mark away."""
        if not self._below:
            raise _broken()
        found, self._stack = self._stack, self._below.pop()
        return found

    def mark(self, _: object) -> None:
        """Set a mark."""
        self._below.append(self._stack)
        self._stack = []

    def drop(self, _: object) -> None:
        """Take away the topmost value, or the mark."""
        if self._stack:
            self._stack.pop()
        else:
            self._above_mark()

    def drop_mark(self, _: object) -> None:
        """Take away the last mark and what is above it."""
        self._above_mark()

    def repeat(self, _: object) -> None:
        """Push the topmost value again."""
        self._stack.append(self._top())

    def tuple_above_mark(self, _: object) -> None:
        """Make a tuple of what is above the mark."""
        found = tuple(self._above_mark())
        self._stack.append(found)

    def tuple_of(self, count: int) -> None:
        """Make a tuple of so many values."""
        found = [self._pop() for _ in range(count)]
        self._stack.append(tuple(reversed(found)))

    def list_above_mark(self, _: object) -> None:
        """Make a list of what is above the mark."""
        found = self._above_mark()
        self._stack.append(found)

    def dict_above_mark(self, _: object) -> None:
        """Make a table of what is above the mark."""
        found = self._above_mark()
        self._stack.append(Table())
        self._put(found)

    def frozen_above_mark(self, _: object) -> None:
        """Make a frozen set of what is above the mark."""
        found = Made("builtins.frozenset", ())
        found.items = self._above_mark()
        self._stack.append(found)

    def append(self, _: object) -> None:
        """Add the topmost value to the one below it."""
        self._extend([self._pop()])

    def append_above_mark(self, _: object) -> None:
        """Add what is above the mark to the value below it."""
        self._extend(self._above_mark())

    def _extend(self, found: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Made):
            target.items.extend(found)
        elif type(target) is list:
            target.extend(found)
        else:
            raise _broken()

    def set_item(self, _: object) -> None:
        """Set one member."""
        value = self._pop()
        self._put([self._pop(), value])

    def set_items_above_mark(self, _: object) -> None:
        """Set the members above the mark."""
        self._put(self._above_mark())

    def _put(self, found: list[Any]) -> None:
        target = self._top()
        if len(found) % 2 or not isinstance(target, Table | Made):
            raise _broken()
        target.pairs.extend(zip(found[::2], found[1::2], strict=True))

    def name_global(self, argument: str) -> None:
        """Name a global."""
        module, _, name = argument.partition(" ")
        self._stack.append(_global(module, name))

    def import_from_stack(self, _: object) -> None:
        """Name a global by two texts."""
        name = self._pop()
        self._stack.append(_global(self._pop(), name))

    def _make(self, target: object, arguments: object) -> None:
        """Push what a call stands for; one that makes a text makes another one each time that it is repeated."""
        made = _made(target, arguments)
        if isinstance(made, bytes | bytearray):
            self._made_text += len(made)
            if self._made_text > MOST_TEXT:
                raise PickleRefusedError(f"at most {MOST_TEXT} characters")
        self._stack.append(made)

    def call(self, _: object) -> None:
        """Record a call."""
        arguments = self._pop()
        self._make(self._pop(), arguments)

    def call_with_names(self, _: object) -> None:
        """Record a call that could have arguments by name."""
        names, arguments = self._pop(), self._pop()
        if not isinstance(names, Table) or names.pairs:
            raise PickleRefusedError("no arguments by name")
        self._make(self._pop(), arguments)

    def call_import(self, argument: str) -> None:
        """Name a global and record its call."""
        found = tuple(self._above_mark())
        module, _, name = argument.partition(" ")
        self._make(_global(module, name), found)

    def call_above_mark(self, _: object) -> None:
        """Record a call of the first value above the mark with the others."""
        found = self._above_mark()
        if not found:
            raise _broken()
        self._make(found[0], tuple(found[1:]))

    def build(self, _: object) -> None:
        """Keep the state of a value."""
        state, target = self._pop(), self._top()
        if not isinstance(target, Made):
            raise _broken()
        target.state = state


_PUSHED: Final = frozenset(
    {"INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"}
    | {"STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
    | {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"}
)
"""Opcodes that push the value that follows them."""
_FRESH: Final[Mapping[str, Callable[[], Any]]] = MappingProxyType(
    {
        "NONE": lambda: None,
        "NEWTRUE": lambda: True,
        "NEWFALSE": lambda: False,
        "EMPTY_LIST": list,
        "EMPTY_TUPLE": tuple,
        "EMPTY_DICT": Table,
        "EMPTY_SET": lambda: Made("builtins.set", ()),
    }
)
_MEMORISED: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_RECALLED: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
_PASSED: Final = frozenset({"PROTO", "FRAME", "STOP"})
_STEPS: Final[Mapping[str, Callable[[_Machine, Any], None]]] = MappingProxyType(
    {
        "MARK": _Machine.mark,
        "POP": _Machine.drop,
        "POP_MARK": _Machine.drop_mark,
        "DUP": _Machine.repeat,
        "TUPLE": _Machine.tuple_above_mark,
        "TUPLE1": lambda machine, _: machine.tuple_of(1),
        "TUPLE2": lambda machine, _: machine.tuple_of(2),
        "TUPLE3": lambda machine, _: machine.tuple_of(3),
        "LIST": _Machine.list_above_mark,
        "DICT": _Machine.dict_above_mark,
        "FROZENSET": _Machine.frozen_above_mark,
        "APPEND": _Machine.append,
        "APPENDS": _Machine.append_above_mark,
        "ADDITEMS": _Machine.append_above_mark,
        "SETITEM": _Machine.set_item,
        "SETITEMS": _Machine.set_items_above_mark,
        "GLOBAL": _Machine.name_global,
        "STACK_GLOBAL": _Machine.import_from_stack,
        "REDUCE": _Machine.call,
        "NEWOBJ": _Machine.call,
        "NEWOBJ_EX": _Machine.call_with_names,
        "INST": _Machine.call_import,
        "OBJ": _Machine.call_above_mark,
        "BUILD": _Machine.build,
    }
)


def _broken() -> PickleRefusedError:
    return PickleRefusedError("opcodes that fit together")


def _global(module: object, name: object) -> Global:
    """Return a global of the list; its name is part of a refusal if it is a name."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise _broken()
    full = f"{_RENAMED.get(module, module)}.{name}"
    if full in ALLOWED:
        return Global(full)
    which = f", not {full}" if len(full) <= _LONGEST_NAME and _shown(full) else ""
    raise ImportRefusedError(f"only imports of trigger, zone and data classes{which}")


def _made(target: object, arguments: object) -> Any:  # noqa: ANN401 - any plain data
    """Return what a call of a global stands for."""
    if not isinstance(target, Global) or type(arguments) is not tuple:
        raise _broken()
    match target.name, arguments:
        case "builtins.getattr", (Global(name="zoneinfo.ZoneInfo"), "_unpickle"):
            return Global(UNPICKLE)
        case "builtins.getattr", _:
            raise ImportRefusedError("getattr of nothing but the class of a zone")
        case "_codecs.encode", (str() as text, "latin1" | "latin-1"):
            return text.encode("latin-1")
        case "_codecs.encode", _:
            raise _broken()
        case "builtins.bytearray", (bytes() as held,):
            return bytearray(held)
        case "builtins.bytearray", (str() as text, "latin1" | "latin-1"):
            return bytearray(text.encode("latin-1"))
        case "copyreg._reconstructor", (Global() as owner, Global(), None):
            return Made(owner.name, ())
        case "copyreg._reconstructor", _:
            raise _broken()
    return Made(target.name, arguments)


def hold_limits(value: object) -> None:
    """Raise ``PickleRefusedError`` for data that is too deep or too much, counted as a tree: shared values repeat."""
    values = text = 0
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        found, depth = waiting.pop()
        values += 1
        if depth > DEEPEST:
            raise PickleRefusedError(f"at most {DEEPEST} values inside each other")
        if isinstance(found, str | bytes | bytearray):
            text += len(found)
        inner: list[Any] = []
        if isinstance(found, list | tuple):
            inner.extend(found)
        elif isinstance(found, Table):
            inner.extend(found.pairs)
        elif isinstance(found, Made):
            inner.extend((found.arguments, found.state, found.items, found.pairs))
        if values + len(waiting) + len(inner) > MOST_VALUES or text > MOST_TEXT:
            raise PickleRefusedError(f"at most {MOST_VALUES} values and {MOST_TEXT} characters")
        waiting.extend((one, depth + 1) for one in inner)
