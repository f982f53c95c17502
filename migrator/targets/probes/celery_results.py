"""Celery's result backends, 5.6 and 5.7: the database and MongoDB.

``entries`` asks ``AsyncResult`` for every task, and ``GroupResult.restore`` for every saved group. The sessions are
read only, and the library gets no chance to make its indexes in MongoDB. ``options.serializer``: the application's
``result_serializer``; omitted: of ``SERIALIZERS`` the first that reads an entry, since nothing stored says which it
was. Pickles are read without code of the application.
"""

from __future__ import annotations

import builtins
import importlib
from typing import Any, Callable

from . import stand_ins, stores
from .dialogue import Lines, Refused

DISTRIBUTIONS = ("celery",)
TASKS, GROUPS = "celery_taskmeta", "celery_tasksetmeta"
MONGO_TASKS, MONGO_GROUPS = "celery_taskmeta", "celery_groupmeta"
SERIALIZERS = ("json", "pickle", "msgpack", "yaml")
LIBRARY = frozenset({"celery.app.base._unpickle_appattr", "celery.backends.base.unpickle_backend"})
"""What pickles of the library's results call."""
FIELDS = ("name", "args", "kwargs", "worker", "retries", "queue", "date_done")


def _serializers(request: dict[str, Any]) -> list[str]:
    """Return the serializers to ask with; of those that are not asked for by name, the ones that are installed."""
    wanted = request.get("options", {}).get("serializer")
    installed = importlib.import_module("kombu.serialization").registry._encoders
    return [wanted] if wanted else [name for name in SERIALIZERS if name in installed]


def _application(request: dict[str, Any], serializer: str, *, read_only: bool) -> Any:
    """Return an application of the library whose backend is the store, and which has nothing else."""
    place = request["store"]
    stores.expect(place, "postgresql", "mongodb")
    app = importlib.import_module("celery").Celery("probe", set_as_current=True, fixups=[])
    app.conf.update(result_serializer=serializer, accept_content=[serializer], result_extended=True)
    _read_pickles_inertly()
    if place["kind"] == "postgresql":
        _use_tables(app, place, read_only=read_only)
    else:
        _use_collections(app, place)
    return app


def _read_pickles_inertly() -> None:
    own = vars(importlib.import_module("celery.exceptions"))
    errors = {name: value for name, value in (*vars(builtins).items(), *own.items()) if _is_error(value)}
    inert = stand_ins.pickles(LIBRARY | {f"{value.__module__}.{name}" for name, value in errors.items()})
    serialization = importlib.import_module("kombu.serialization")
    serialization.register(
        "pickle",
        inert.dumps,
        lambda payload: inert.loads(payload.encode() if isinstance(payload, str) else payload),
        content_type="application/x-python-serialize",
        content_encoding="binary",
    )
    backends = importlib.import_module("celery.backends.base")
    setattr(backends, "unpickle_backend", _own_backend)  # noqa: B010 - as below
    models = importlib.import_module("celery.backends.database.models")
    for model in (models.Task, models.TaskExtended, models.TaskSet):
        for column in model.__table__.columns:
            if hasattr(column.type, "pickler"):
                column.type.pickler = inert
    module = importlib.import_module("celery.backends.database")
    if hasattr(module, "pickle"):
        setattr(module, "pickle", inert)  # noqa: B010 - a module has no such attribute for mypy


def _own_backend(*_: Any) -> Any:
    """Return the backend of this application for that of a pickled group, which names an address of its own."""
    return importlib.import_module("celery").current_app.backend


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _use_tables(app: Any, place: dict[str, Any], *, read_only: bool) -> None:
    schema = place.get("schema") or None
    app.conf.update(
        result_backend="db+" + stores.engine_url(),
        database_engine_options={"creator": stores.connector(place, read_only=read_only)},
        database_table_names={"task": stores.named(place, TASKS), "group": stores.named(place, GROUPS)},
        database_table_schemas={"task": schema, "group": schema},
        database_create_tables_at_setup=False,
    )
    if read_only:
        session = importlib.import_module("celery.backends.database.session").SessionManager
        session.prepare_models = lambda *_: None  # it would make the tables
        app.backend.session_manager.forked = True  # as in a worker: a pool, not a connection for each result


def _use_collections(app: Any, place: dict[str, Any]) -> None:
    app.conf.update(
        result_backend=place["uri"],
        mongodb_backend_settings={"database": place["database"]},
    )
    backend = app.backend
    database = stores.mongo_client(place)[place["database"]]
    # in the place of the library's own, which make an index
    backend.__dict__["collection"] = database[stores.named(place, MONGO_TASKS)]
    backend.__dict__["group_collection"] = database[stores.named(place, MONGO_GROUPS)]


def entries(request: dict[str, Any], lines: Lines) -> None:
    """Print each task, then each group, as the library finds it."""
    apps = [_application(request, name, read_only=True) for name in _serializers(request)]
    extended = _extended(request["store"])

    def task(app: Any, key: str) -> dict[str, Any]:
        app.conf.result_extended = extended is None or key in extended
        return {"fields": _fields(app.AsyncResult(key))}

    def group(app: Any, key: str) -> dict[str, Any]:
        restored = app.GroupResult.restore(key)
        return {"group": [child.id for child in getattr(restored, "results", restored)]}

    for key in _ids(request["store"], TASKS, "task_id", MONGO_TASKS):
        _put(lines, key, apps, task)
    for key in _ids(request["store"], GROUPS, "taskset_id", MONGO_GROUPS):
        _put(lines, key, apps, group)


def _put(lines: Lines, key: str, apps: list[Any], read: Callable[[Any, str], dict[str, Any]]) -> None:
    """Print what the first application says that can read an entry, else the error of the first."""
    errors: list[Exception] = []
    for app in apps:
        try:
            members = read(app, key)
        except Exception as error:  # noqa: BLE001 - of one entry
            errors.append(error)
        else:
            lines.put("entry", id=key, **members)
            return
    lines.fail(key, errors[0])


def _extended(place: dict[str, Any]) -> set[str] | None:
    """Return the ids of documents with what ``result_extended`` adds; 5.6 fails on others. None: of no collection."""
    if place["kind"] != "mongodb":
        return None
    collection = stores.mongo_client(place)[place["database"]][stores.named(place, MONGO_TASKS)]
    return {str(document["_id"]) for document in collection.find({"name": {"$exists": True}}, {"_id": 1})}


def _ids(place: dict[str, Any], table: str, column: str, collection: str) -> list[str]:
    """Return the ids in a table, or in a collection, without the library."""
    if place["kind"] == "mongodb":
        found = stores.mongo_client(place)[place["database"]][stores.named(place, collection)].find({}, {"_id": 1})
        return sorted(str(document["_id"]) for document in found)
    names = [part for part in (place.get("schema"), stores.named(place, table)) if part]
    quoted = ".".join('"' + name.replace('"', '""') + '"' for name in names)
    return sorted(str(key) for (key,) in stores.execute(place, f"SELECT {column} FROM {quoted}"))  # noqa: S608 - quoted


def _fields(result: Any) -> dict[str, Any]:
    fields = {name: stand_ins.plain(getattr(result, name)) for name in FIELDS}
    children = result.children or ()
    return fields | {
        "state": result.state,
        "result": _shown(result.result),
        "traceback": result.traceback,
        "children": [_child(child) for child in children],
    }


def _child(child: Any) -> Any:
    """Return the id of a child; of a task that has not ended, the library gives what is stored."""
    return child.id if hasattr(child, "id") else stand_ins.plain(child)


def _shown(value: Any) -> Any:
    """Return a result as JSON; of an exception its class and its arguments."""
    if isinstance(value, BaseException):
        return {"exception": type(value).__name__, "arguments": stand_ins.plain(value.args)}
    return stand_ins.plain(value)


def fires(_request: dict[str, Any], _lines: Lines) -> None:
    """Print nothing: results do not fire."""


def work(_request: dict[str, Any], _lines: Lines) -> None:
    """Refuse: a result is not executed."""
    raise Refused("results are not executed")


def prepare(request: dict[str, Any], lines: Lines) -> None:
    """Let the library make its tables."""
    stores.expect(request["store"], "postgresql")
    _application(request, _serializers(request)[0], read_only=False).backend.ResultSession().close()
    lines.put("prepared", tables=[TASKS, GROUPS])
