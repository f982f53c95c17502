"""docs/api.md, made from the docstrings and signatures of what ``from migrator import ...`` gives."""

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import migrator
from migrator import config
from migrator.records import Record
from migrator.scheduler import client
from migrator.store import locks, protocols, queue

DOCS = Path(__file__).resolve().parents[3] / "docs"
PROGRAMS = DOCS / "programs"

GROUPS = {
    "Settings": ("migrator.config",),
    "The store": ("migrator.store", "migrator.store.protocols"),
    "The client": ("migrator.scheduler.client", "migrator.scheduler.async_client"),
    "What the client is given and returns": (
        "migrator.scheduler.models",
        "migrator.store.queue",
        "migrator.scheduler.queries",
        "migrator.store.statistics",
        "migrator.scheduler.health",
        "migrator.scheduler.lifecycle",
    ),
    "Records": ("migrator.records",),
    "Executing runs": (
        "migrator.scheduler.process",
        "migrator.scheduler.worker",
        "migrator.scheduler.handlers",
        "migrator.scheduler.completion",
    ),
    "Errors": ("migrator.errors",),
}
"""The headings of the page, and whose names stand under each."""

SETTINGS = ("source", "copy", "cutover", "report", "embedded")
"""Sections that are the tool's; an application leaves them at their defaults."""

REACHED = (
    config.MongoSettings,
    config.PostgresSettings,
    config.PersistenceSettings,
    config.SchedulerSettings,
    queue.Queue,
    queue.Finish,
    locks.Locks,
    locks.LockHandle,
    protocols.Session,
)
"""What the names above return, hold and take; it is not imported by an application."""

GIVEN = (migrator.Context,)
"""What an application is given, and does not make."""

LEFT_OUT = {"Queue": {"fire_due", "expired", "expire", "tenants"}, "Context": {"cancel"}}
"""What the worker process alone calls."""

HEAD = Path(__file__).with_name("api_head.md")
PROGRAMS_HERE = "<!-- programs -->\n"


def api_page(notice: str) -> str:
    """Return the page."""
    programs: list[str] = []
    for heading, program in (
        ("Create, trigger, claim, finish, read history", "client.py"),
        ("A worker process", "worker.py"),
    ):
        programs += [f"## Program: {heading}", "", f"[programs/{program}](programs/{program})", "", "```python"]
        programs += [*(PROGRAMS / program).read_text().splitlines(), "```", ""]
    before, after = HEAD.read_text().split(PROGRAMS_HERE)
    lines = [notice, *before.splitlines(), *programs, *after.strip().splitlines(), ""]
    for heading, modules in GROUPS.items():
        lines += [f"## {heading}", ""]
        if heading == "Errors":
            lines += [*_errors(modules[0]), ""]
            continue
        for module in modules:
            for name in migrator._MODULES[module].split():
                lines += _entry(getattr(migrator, name))
    lines += ["## What these names return and take", ""]
    lines += ["These types are reached through the names above, and are not imported by an application.", ""]
    for thing in REACHED:
        lines += _entry(thing)
    return "\n".join(lines).rstrip() + "\n"


def _errors(module: str) -> Iterator[str]:
    """Yield the table of public errors, each with the errors that it is too, the nearest first."""
    public = [getattr(migrator, name) for name in migrator._MODULES[module].split()]
    yield "| error | meaning | is caught as well by |"
    yield "|---|---|---|"
    for error in public:
        bases = ", ".join(f"`{base.__name__}`" for base in error.__mro__[1:] if base in public)
        yield f"| `{error.__name__}` | {_prose(error.__doc__)[0]} | {bases} |"


def _entry(thing: object) -> Iterator[str]:
    node = _node(thing)
    if isinstance(node, ast.FunctionDef):
        yield from [f"### `{_signature(node)}`", "", *_prose(ast.get_docstring(node)), ""]
        return
    yield from [f"### `{node.name}`", "", *_prose(ast.get_docstring(node)), ""]
    making = next((one for one in _functions(node) if one.name == "__init__"), None)
    if making is not None and thing not in GIVEN:
        yield from [f"`{_signature(making, node.name)}`", ""]
        if ast.get_docstring(making):
            yield from [*_prose(ast.get_docstring(making)), ""]
    fields = [*_fields(thing)]
    if isinstance(thing, type) and issubclass(thing, Record):
        yield f"[Columns](tables.md#{thing.table}): " + ", ".join(f"`{name}`" for name, _, _ in fields)
        yield ""
    elif fields:
        yield from ["| field | type, default | meaning |", "|---|---|---|"]
        yield from (f"| `{name}` | `{kind.replace('|', chr(92) + '|')}` | {about} |" for name, kind, about in fields)
        yield ""
    methods = [*_methods(thing)]
    yield from (f"- `{signature}`: {about}" for signature, about in methods)
    if methods:
        yield ""


def _methods(thing: object) -> Iterator[tuple[str, str]]:
    """Yield what can be called or read of a class, with its description in one line; those of its bases first."""
    assert isinstance(thing, type)
    if thing is migrator.AsyncScheduler:
        return
    for of in [one for one in reversed(thing.__mro__) if one.__module__.startswith("migrator")]:
        for one in _functions(_node(of)):
            about = _line(ast.get_docstring(one))
            if one.name.startswith("_") or one.name in LEFT_OUT.get(thing.__name__, ()):
                continue
            if "property" in map(ast.unparse, one.decorator_list):
                yield (
                    f"{one.name}: {ast.unparse(one.returns) if one.returns else ''}",
                    about or "those of the session's tenant.",
                )
            elif about:
                yield _signature(one), about


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef)]


def _fields(thing: object) -> Iterator[tuple[str, str, str]]:
    """Yield name, type with default, and meaning of each field of a struct, those of its bases first."""
    assert isinstance(thing, type)
    for of in [
        one for one in reversed(thing.__mro__) if hasattr(one, "__struct_fields__") and one.__module__ in _known()
    ]:
        body = _node(of).body
        for one, after in zip(body, [*body[1:], None], strict=True):
            if not isinstance(one, ast.AnnAssign) or "ClassVar" in ast.unparse(one.annotation):
                continue
            name = ast.unparse(one.target)
            if thing is migrator.Settings and name in SETTINGS:
                continue
            default = "" if one.value is None else f" = {_default(ast.unparse(one.value))}"
            said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            about = _line(after.value.value) if said else ""  # type: ignore[union-attr]  # asked just now
            yield name, _plain(ast.unparse(one.annotation)) + default, about


def _default(text: str) -> str:
    """Return a default as a reader knows it: that of a factory is what it makes."""
    if text.startswith(("field(", "msgspec.field(")):
        made = text.partition("default_factory=")[2].rstrip(")")
        return {"dict": "{}", "list": "[]"}.get(made, f"{made}()")
    return {"UNSET": "unset"}.get(text, text)


def _plain(annotation: str) -> str:
    """Return a type without what only checks its values."""
    annotation = re.sub(r"Annotated\[(\w+), .*\]", r"\1", annotation)
    annotation = {"Positive": "int", "Role": "str", "Wait": "timedelta", "WaitOrNone": "timedelta"}.get(
        annotation, annotation
    )
    return annotation.replace(" | UnsetType", "").replace("UnsetType | ", "")


@cache
def _known() -> frozenset[str]:
    return frozenset({*migrator._MODULES, *(one.__module__ for one in REACHED)})


@cache
def _classes(path: str) -> dict[str, ast.ClassDef | ast.FunctionDef]:
    body = ast.parse(Path(path).read_text()).body
    return {one.name: one for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef))}


def _node(thing: object) -> "ast.ClassDef":
    """Return the source of a class or function."""
    source = inspect.getsourcefile(inspect.unwrap(thing))  # type: ignore[arg-type]  # classes and functions have one
    assert source is not None
    return _classes(source)[thing.__name__]  # type: ignore[attr-defined, return-value]  # as above


def _signature(node: ast.FunctionDef, name: str | None = None) -> str:
    """Return a call with its parameters and result; values that stand for a name are written out."""
    node = ast.parse(ast.unparse(node)).body[0]  # type: ignore[assignment]  # a copy
    named = node.args
    if named.args and named.args[0].arg == "self":
        named.args.pop(0)
    arguments = re.sub(r"(?<=[\w\]\"'])=(?=\S)", " = ", ast.unparse(named))
    arguments = arguments.replace("DEFAULT_ACTOR", repr(client.DEFAULT_ACTOR))
    returns = "" if node.returns is None or name else f" -> {ast.unparse(node.returns)}"
    return f"{name or node.name}({arguments}){returns}".replace("'", '"').replace('"Store"', "Store")


def _line(text: str | None) -> str:
    """Return a docstring in one line of Markdown."""
    return " ".join(filter(None, _prose(text)))


def _prose(text: str | None) -> list[str]:
    """Return a docstring as lines of Markdown."""
    return inspect.cleandoc(text or "").replace("``", "`").splitlines()
