"""An inert reader of pickles: plain data out of opcodes. Nothing is imported, nothing is called, no object is made.

The standard library splits the bytes into opcodes (``pickletools``, which executes nothing). A global is a name here:
it must stand in ``ALLOWED``, and what a pickle would call it with becomes a record (``Made``) of the name and the
arguments. Everything else raises ``PickleRefusedError``: another global, an opcode that needs the program that wrote
the pickle, a pickle that is cut off or goes on after its end, and one beyond a limit. The limits bound the work that a
small pickle may cause: depth is counted without recursion, and values that are shared count each time they are reached.

The native codec reads the pickles that hold common opcodes alone and stay far below the limits, in the same way. All
others, and all that are refused, are read here.
"""

import io
import pickletools
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from migrator import native

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


class PickledDict:
    """A ``dict``, as its pairs in their order; a key may be anything, and may repeat."""

    __slots__ = ("pairs",)

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []

    def named(self) -> dict[str, Any]:
        """Return the members whose keys are texts; the last one of a name counts."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


class Made:
    """What a pickle would have made by calling ``name`` with ``arguments``: its state, items and pairs as they came.

    Several pickles may share one (``_SHARED``), so nobody changes it once it was read.
    """

    __slots__ = ("arguments", "items", "meaning", "name", "pairs", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name = name
        self.arguments = arguments
        self.state: Any = None
        self.items: list[Any] = []
        self.pairs: list[tuple[Any, Any]] = []
        self.meaning: Any = None
        """Kept by who has worked out what it says."""


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
_CONVERTED: Final = frozenset({_GETATTR, _ENCODE, _RECONSTRUCTOR, "builtins.bytearray"})
"""Globals whose call may stand for something else than a record of it."""
_SHARED: Final = "trigger"
"""The member of a job's state whose value comes again in many pickles."""
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
    reader = _native()
    found: tuple[Any] | None = None if reader is None else reader.read(data)
    return read_opcodes(data) if found is None else found[0]


def is_common(data: bytes) -> bool:
    """Whether the native reader reads a pickle: it has common opcodes alone, and stays far below the limits."""
    reader = _native()
    return reader is not None and reader.read(data) is not None


@cache
def _native() -> Any:  # noqa: ANN401 - of an extension
    """Return the reader of common pickles, which returns None for all others; None: there is no native codec."""
    if native.module() is None:
        return None
    reader = import_module("migrator_speedups.pickles").PickleReader
    return reader(PickledDict, Made, Global, _global, _made, _CONVERTED, _SHARED)


def read_opcodes(data: bytes, *, any_name: bool = False) -> Any:  # noqa: ANN401 - any plain data
    """Do what ``read`` does, opcode by opcode: this is what decides.

    ``any_name``: a global may have any name. It is a name here like those of the list, of which nothing is loaded.
    """
    if len(data) > LONGEST:
        raise PickleRefusedError(f"at most {LONGEST} bytes")
    stream = io.BytesIO(data)
    machine = _Machine(any_name=any_name)
    try:
        machine.execute(stream)
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

    def __init__(self, *, any_name: bool) -> None:
        self._any_name = any_name
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        """The stacks under the marks that are set."""
        self._memo: dict[int, Any] = {}
        self._made_text = 0
        """Characters and bytes of all texts that calls have made."""

    def execute(self, stream: io.BytesIO) -> None:
        """Carry out the opcodes up to the one that stops; raises ``ValueError`` for bytes that are no opcode."""
        for _ in range(MOST_OPCODES):
            code = stream.read(1)
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise ValueError("an unknown opcode, or none")
            read_argument, step = operation
            step(self, None if read_argument is None else read_argument(stream))
            if code == _STOP:
                return
        raise PickleRefusedError(f"at most {MOST_OPCODES} opcodes")

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
        """Return the values above the last mark, and take the mark away."""
        if not self._below:
            raise _broken()
        found, self._stack = self._stack, self._below.pop()
        return found

    def push(self, argument: object) -> None:
        """Push the value that follows the opcode."""
        self._stack.append(argument)

    def push_integer(self, argument: int) -> None:
        """Push the number that follows the opcode."""
        if argument.bit_length() > LONGEST_INTEGER:
            raise PickleRefusedError(f"integers of at most {LONGEST_INTEGER} bits")
        self._stack.append(argument)

    def push_table(self, _: object) -> None:
        """Push an empty table."""
        self._stack.append(PickledDict())

    def memorise(self, place: int | None) -> None:
        """Keep the topmost value; None: at the next place."""
        self._memo[len(self._memo) if place is None else place] = self._top()

    def recall(self, place: int) -> None:
        """Push what was kept at a place."""
        if place not in self._memo:
            raise _broken()
        self._stack.append(self._memo[place])

    def go_on(self, _: object) -> None:
        """Do nothing: the opcode says how the pickle is written."""

    def refuse(self, _: object) -> None:
        """Refuse an opcode that needs the program that wrote the pickle."""
        raise PickleRefusedError("no persistent id, no extension code and no buffer outside of the pickle")

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
        if len(self._stack) < count:
            raise _broken()
        found = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(found)

    def list_above_mark(self, _: object) -> None:
        """Make a list of what is above the mark."""
        found = self._above_mark()
        self._stack.append(found)

    def dict_above_mark(self, _: object) -> None:
        """Make a table of what is above the mark."""
        found = self._above_mark()
        self._stack.append(PickledDict())
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

    def _extend(self, items: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Made):
            target.items.extend(items)
        elif type(target) is list:
            target.extend(items)
        else:
            raise _broken()

    def set_item(self, _: object) -> None:
        """Set one member."""
        value = self._pop()
        self._put([self._pop(), value])

    def set_items_above_mark(self, _: object) -> None:
        """Set the members above the mark."""
        self._put(self._above_mark())

    def _put(self, items: list[Any]) -> None:
        target = self._top()
        if len(items) % 2 or not isinstance(target, PickledDict | Made):
            raise _broken()
        target.pairs.extend(zip(items[::2], items[1::2], strict=True))

    def name_global(self, argument: str) -> None:
        """Name a global."""
        module, _, name = argument.partition(" ")
        self._stack.append(self._named(module, name))

    def import_from_stack(self, _: object) -> None:
        """Name a global by two texts."""
        name = self._pop()
        self._stack.append(self._named(self._pop(), name))

    def _named(self, module: object, name: object) -> Global:
        if self._any_name and isinstance(module, str) and isinstance(name, str):
            return Global(f"{_RENAMED.get(module, module)}.{name}")
        return _global(module, name)

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
        if not isinstance(names, PickledDict) or names.pairs:
            raise PickleRefusedError("no arguments by name")
        self._make(self._pop(), arguments)

    def call_import(self, argument: str) -> None:
        """Name a global and record its call."""
        found = tuple(self._above_mark())
        module, _, name = argument.partition(" ")
        self._make(self._named(module, name), found)

    def call_above_mark(self, _: object) -> None:
        """Record a call of the first value above the mark with the others."""
        arguments = self._above_mark()
        if not arguments:
            raise _broken()
        self._make(arguments[0], tuple(arguments[1:]))

    def build(self, _: object) -> None:
        """Keep the state of a value."""
        state, target = self._pop(), self._top()
        if not isinstance(target, Made):
            raise _broken()
        target.state = state


_Step: TypeAlias = Callable[[_Machine, Any], None]

_STEPS: Final[Mapping[str, _Step]] = MappingProxyType(
    {
        **dict.fromkeys(("INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2"), _Machine.push_integer),
        **dict.fromkeys(("FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING"), _Machine.push),
        **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), _Machine.push),
        **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), _Machine.push),
        "NONE": _Machine.push,
        "NEWTRUE": lambda machine, _: machine.push(argument=True),
        "NEWFALSE": lambda machine, _: machine.push(argument=False),
        "EMPTY_LIST": lambda machine, _: machine.push([]),
        "EMPTY_TUPLE": lambda machine, _: machine.push(()),
        "EMPTY_DICT": _Machine.push_table,
        "EMPTY_SET": lambda machine, _: machine.push(Made("builtins.set", ())),
        **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Machine.memorise),
        **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.recall),
        **dict.fromkeys(("PROTO", "FRAME", "STOP"), _Machine.go_on),
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
_STOP: Final = b"."
_OPERATIONS: Final[Mapping[bytes, tuple[Callable[[io.BytesIO], Any] | None, _Step]]] = {
    opcode.code.encode("latin-1"): (
        None if opcode.arg is None else opcode.arg.reader,
        _STEPS.get(opcode.name, _Machine.refuse),
    )
    for opcode in pickletools.opcodes
}
"""Code of each opcode to what reads its argument, and what carries it out."""


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
    """Return the value that a call of a global stands for."""
    if not isinstance(target, Global) or type(arguments) is not tuple:
        raise _broken()
    return _converted(target.name, arguments) if target.name in _CONVERTED else Made(target.name, arguments)


def _converted(name: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 - any plain data
    match name, arguments:
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
    return Made(name, arguments)


def hold_limits(value: object) -> None:
    """Raise ``PickleRefusedError`` for data that is too deep or too much, counted as a tree: shared values repeat."""
    values = text = 0
    level: list[Any] = [value]
    for _ in range(DEEPEST + 1):
        values += len(level)
        inner: list[Any] = []
        for member in level:
            kind = type(member)
            if kind is str or kind is bytes or kind is bytearray:
                text += len(member)
                continue
            if kind is list or kind is tuple:
                inner += member
            elif kind is PickledDict:
                inner += member.pairs
            elif kind is Made:
                inner += (member.arguments, member.state, member.items, member.pairs)
            else:
                continue
            if values + len(inner) > MOST_VALUES:
                break
        if values + len(inner) > MOST_VALUES or text > MOST_TEXT:
            raise PickleRefusedError(f"at most {MOST_VALUES} values and {MOST_TEXT} characters")
        if not inner:
            return
        level = inner
    raise PickleRefusedError(f"at most {DEEPEST} values inside each other")
