"""Celery's results, moved into the tables of its database backend, and read there by Celery itself."""

import json
import pickle
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgpack
import psycopg
import pytest
import yaml
from bson import Binary, ObjectId
from psycopg import sql
from pymongo.database import Database

from migrator.config import Settings, TargetSettings
from migrator.connections.postgres import open_target
from migrator.cutover import gates, library_cutover, reverse_sync
from migrator.cutover.gates import GateOptions
from migrator.cutover.library_tables import library_tables
from migrator.errors import RefusedError
from migrator.exit_status import USAGE
from migrator.parity.repair import apply_repair
from migrator.pipeline.backfill import backfill
from migrator.pipeline.plan import Scope
from migrator.schema import native_target, revisions
from migrator.targets import load_target
from migrator.targets.library import MongoStore, PostgresStore
from migrator.testing.servers.mongo import MongoServer
from tests.copying import quarantine, run, settings_for, write_config
from tests.cutting_over import gate
from tests.native_tables import BY_NAME, Made, ask, prepare
from tests.real_documents import real_documents
from tests.tailing import caught_up, compared

Document = dict[str, Any]
TASKS, GROUPS = "celery_taskmeta", "celery_groupmeta"
NEW, OLD = BY_NAME["celery-results-5.7"], BY_NAME["celery-results-5-6-5.6"]
both = pytest.mark.parametrize("made", [pytest.param(made, id=made.shape) for made in (NEW, OLD)])
DONE = datetime(2026, 11, 24, 1, 2, 3, 4_000)  # noqa: DTZ001 - as BSON has it


def task(key: object, **changes: Any) -> Document:  # noqa: ANN401 - of a document
    """Return a document as Celery writes one."""
    plain: Document = {"status": "SUCCESS", "result": "5", "traceback": None, "children": [], "date_done": DONE}
    return {"_id": key, **plain} | changes


def prepared(made: Made, database: Database[Document], dsn: str, *, tables: Made | None = None) -> Settings:
    """Let the library, or another version of it, make its tables, and the tool its schema; return the settings."""
    prepare(tables or made, dsn)
    settings = settings_for(database, dsn, profile="celery-results", target=TargetSettings(name=made.target))
    revisions.upgrade(dsn, branches=(revisions.TOOL,))
    with psycopg.connect(dsn, autocommit=True) as connection:
        native_target.prepare(connection, load_target(made.target), settings.target)
    return settings


def rows(settings: Settings, query: str) -> Sequence[Any]:
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        return connection.execute(query).fetchall()


def unlike(made: Made, mongo: MongoStore, postgres: PostgresStore, serializer: str = "json") -> dict[str, list[str]]:
    """Return of each id what Celery finds otherwise in PostgreSQL; what it cannot read in MongoDB is not compared."""
    options = {"serializer": serializer}
    left, right = (ask(made, side, "entries", options=options) for side in (mongo, postgres))
    found = {line["id"]: line for line in right[:-1]}
    differing = {}
    for line in left[:-1]:
        if line["kind"] == "failed":
            continue
        other = found.get(line["id"], {})
        members, others = (side.get("fields", {}) | {"group": side.get("group")} for side in (line, other))
        names = [name for name in members if members[name] != others.get(name)]
        if names:
            differing[line["id"]] = names
    return differing


@pytest.mark.proves("6-T3")
@both
def test_celery_reads_the_same_from_its_tables(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    for name in (TASKS, GROUPS):
        mongo_database[name].insert_many(real_documents(f"celery-results/{name}"))
    mongo_database[TASKS].insert_many(
        [
            task("typed", result='{"at": {"__type__": "datetime", "__value__": "2026-11-24T01:02:03"}}'),
            task("call", name="demo.add", args=[1, {"at": DONE}], kwargs={"b": b"\xff"}, worker="w", retries=2),
        ]
    )
    settings = prepared(made, mongo_database, postgres_dsn)
    result = backfill(settings, Scope())
    packed = {key for collection, key, *_ in quarantine(postgres_dsn) if collection == TASKS}
    assert {(reason, path) for _, _, reason, path, _ in quarantine(postgres_dsn)} <= {("wrong-type", "result")}
    assert len(packed) == result.quarantined == (0 if made is NEW else 22), "results in msgpack alone"
    assert compared(settings) == []
    assert backfill(settings, Scope()).written == 0
    mongo, postgres = MongoStore(mongo_server.uri, mongo_database.name), PostgresStore(postgres_dsn)
    for serializer in ("json", "pickle", "msgpack") if made is NEW else ("json", "pickle"):
        differing = unlike(made, mongo, postgres, serializer)
        if made is OLD:  # it has no column for them
            parents = {one["_id"] for one in mongo_database[TASKS].find({"children": {"$nin": [None, []]}})}
            assert differing.keys() <= parents
            assert {tuple(names) for names in differing.values()} == {("children",)}
        else:
            assert differing == {}
    answer = ask(made, postgres, "entries")
    states = {line["fields"]["state"] for line in answer[:-1] if "fields" in line}
    assert states >= {"SUCCESS", "FAILURE", "REVOKED", "STARTED", "PROGRESS", "RETRY", "PENDING", "ABORTED"}
    assert len([line for line in answer[:-1] if line.get("group")]) == 4


@pytest.mark.proves("6-T3")
@pytest.mark.parametrize("serializer", ["msgpack", "yaml"])
def test_celery_reads_documents_of_other_serializers(
    serializer: str, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    def of(value: object) -> Any:  # noqa: ANN401 - as MongoDB has it
        data = SERIALIZERS[serializer](value)
        return data.decode() if serializer == "yaml" else data

    call = {
        "name": "demo.add",
        "args": [1, 1e16, "\U0001f600"],
        "kwargs": {"b": b"\xff", "n": float("inf")},
        "retries": 2,
    }
    timed = {"name": "demo.at", "args": [DONE], "kwargs": {}}
    mongo_database[TASKS].insert_many(
        [
            task("empty", result=of({}), **call),
            task("number", result=of(200), children=[[["a", None], None]], **call),
            task("timed", result=of(["a"]), **timed),
        ]
    )
    mongo_database[GROUPS].insert_one({"_id": "g", "result": of(["a", "number"]), "date_done": DONE})
    settings = prepared(NEW, mongo_database, postgres_dsn)
    assert backfill(settings, Scope()).quarantined == 0
    assert compared(settings) == []
    sides = MongoStore(mongo_server.uri, mongo_database.name), PostgresStore(postgres_dsn)
    answers = [ask(NEW, side, "entries", options={"serializer": serializer}) for side in sides]
    assert [line["kind"] for line in answers[0]] == ["entry"] * 4 + ["done"], "each is read in MongoDB"
    expected = {"timed": ["args"]} if serializer == "msgpack" else {}
    assert unlike(NEW, *sides, serializer) == expected, "MessagePack has no times: the column is empty"


@both
def test_a_row_that_says_something_else_is_seen(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    mongo_database[TASKS].insert_many([task("a"), task("b", status="FAILURE", result='{"exc_type": "E"}'), task("c")])
    mongo_database[GROUPS].insert_one({"_id": "g", "result": '["a", "b"]', "date_done": DONE})
    settings = prepared(made, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    mongo, postgres = MongoStore(mongo_server.uri, mongo_database.name), PostgresStore(postgres_dsn)
    assert unlike(made, mongo, postgres) == {}
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE celery_taskmeta SET status = 'REVOKED' WHERE task_id = 'b'")
        connection.execute("UPDATE celery_taskmeta SET date_done = date_done + interval '1 ms' WHERE task_id = 'a'")
        connection.execute("DELETE FROM celery_taskmeta WHERE task_id = 'c'")
        connection.execute("DELETE FROM celery_tasksetmeta")
    differing = unlike(made, mongo, postgres)
    assert differing["b"] == ["state"]
    assert differing["a"] == ["date_done"]
    assert "state" in differing["c"]
    assert differing["g"] == ["group"]


@both
def test_what_a_column_cannot_hold_is_quarantined_alone(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    wrong: dict[str, Document] = {
        "too-long at _id": task("i" * 156),
        "too-long at status": task("s", status="S" * 51),
        "too-long at name": task("n", name="n" * 156),
        "wrong-type at _id": task(ObjectId()),
        "wrong-type at result": task("r", result={"bson": "serializer"}),
        "wrong-type at args": task("a", args=[ObjectId()]),
        "out-of-range at retries": task("t", retries=2**31),
        "bad-date at date_done": task("d", date_done="yesterday"),
    }
    if made is OLD:
        wrong["wrong-type at result "] = task("j", result="no JSON")
        wrong["wrong-type at result  "] = task("k", result='{"__type__": "shop", "__value__": 1}')
    groups = {"wrong-type at result": {"_id": "g", "result": '[["nested"]]', "date_done": DONE}}
    mongo_database[TASKS].insert_many([task("good"), *wrong.values()])
    mongo_database[GROUPS].insert_many([*groups.values(), {"_id": "none", "result": "[]", "date_done": DONE}])
    settings = prepared(made, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    assert rows(settings, "SELECT task_id FROM celery_taskmeta") == [("good",)]
    assert rows(settings, "SELECT taskset_id FROM celery_tasksetmeta") == [("none",)]
    reasons = sorted(f"{reason} at {path}" for _, _, reason, path, _ in quarantine(postgres_dsn))
    assert reasons == sorted(reason.strip() for reason in (*wrong, *groups))
    assert compared(settings) == []


@both
def test_what_is_odd_is_kept_and_comes_back(
    made: Made, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    odd = [
        task("unknown", status="MINE"),
        task("nul", traceback="a\0b", result='"a\\u0000b"'),
        task("nan", result='{"a": NaN, "b": Infinity, "c": 1e400, "d": -0.0}'),
        task("spelled", result='{"b":1,"a":[ 2.50 ]}'),
        task("iso", date_done="2026-11-24T01:02:03.000004+00:00"),
        task("plain bytes", result=Binary(b"x", 128)),
        task("null", result="null"),
        task("none", result=None),
        task("lost", group_id="g", parent_id="p", mine={"x": 1}),
        task("stamped", stamped_headers=["v"], v=["1"]),
        {"_id": "bare", "status": "STARTED", "result": "{}"},
    ]
    odd = [one for one in odd if made is NEW or one["_id"] != "plain bytes"]
    mongo_database[TASKS].insert_many(odd)
    orphans = '["null", "never stored"]'
    mongo_database[GROUPS].insert_one({"_id": "orphans", "result": orphans, "date_done": DONE})
    settings = prepared(made, mongo_database, postgres_dsn)
    assert backfill(settings, Scope()).quarantined == 0
    assert rows(settings, "SELECT taskset_id FROM celery_tasksetmeta") == [("orphans",)], "a child may be missing"
    assert compared(settings) == []
    stored = rows(settings, "SELECT task_id, status, traceback, date_done FROM celery_taskmeta")
    by_key = {key: rest for key, *rest in stored}
    assert by_key["unknown"][0] == "MINE"
    assert by_key["nul"][1] == "a\ufffdb", "PostgreSQL has no U+0000 in a text; the document has it"
    assert by_key["iso"][2] == datetime(2026, 11, 24, 1, 2, 3, 4)  # noqa: DTZ001 - the column's
    differing = unlike(made, MongoStore(mongo_server.uri, mongo_database.name), PostgresStore(postgres_dsn))
    assert differing == {"nul": ["traceback"], "iso": ["date_done"]}
    if made is NEW:
        [(stamps,)] = rows(settings, "SELECT stamps FROM celery_taskmeta WHERE task_id = 'stamped'")
        assert bytes(stamps) == b'{"stamped_headers": ["v"], "stamps": {"v": ["1"]}}'


@both
def test_a_pickle_of_a_class_that_does_not_exist_is_copied_as_it_is(
    made: Made, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    pickled = b"\x80\x04\x8c\x04nope\x94\x8c\x05Class\x94\x93\x94."
    mongo_database[TASKS].insert_one(task("a", result=Binary(pickled, 0)))
    settings = prepared(made, mongo_database, postgres_dsn)
    assert backfill(settings, Scope()).quarantined == 0
    assert rows(settings, "SELECT result FROM celery_taskmeta") == [(pickled,)]
    assert compared(settings) == []


@both
def test_the_tail_follows_and_repair_repairs(made: Made, mongo_database: Database[Document], postgres_dsn: str) -> None:
    tasks = mongo_database[TASKS]
    tasks.insert_many([task(name) for name in ("a", "b", "c")])
    settings = prepared(made, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    before = dict(rows(settings, "SELECT task_id, id FROM celery_taskmeta"))
    tasks.update_one({"_id": "a"}, {"$set": {"status": "REVOKED"}})
    tasks.delete_one({"_id": "b"})
    tasks.insert_one(task("d"))
    mongo_database[GROUPS].insert_one({"_id": "g", "result": '["a"]', "date_done": DONE})
    caught_up(settings)
    stored = rows(settings, "SELECT task_id, id, status FROM celery_taskmeta")
    after = {key: (number, status) for key, number, status in stored}
    assert {key: status for key, (_, status) in after.items()} == {"a": "REVOKED", "c": "SUCCESS", "d": "SUCCESS"}
    assert after["a"][0] == before["a"], "the library's own key stays"
    [(following,)] = rows(settings, "SELECT nextval('task_id_sequence')")
    assert following > max(number for number, _ in after.values())
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("UPDATE celery_taskmeta SET result = '\\x00' WHERE task_id = 'a'")
        connection.execute("DELETE FROM celery_tasksetmeta")
    assert {(key, side) for _, key, side, _ in compared(settings) if side != "aggregate"} == {
        ("a", "row"),
        ("g", "missing"),
    }
    apply_repair(settings, Scope(), overwrite=True)
    assert compared(settings) == []


@pytest.mark.parametrize(("made", "other"), [(NEW, OLD), (OLD, NEW)], ids=["5.7 on 5.6", "5.6 on 5.7"])
def test_the_tables_of_the_other_format_are_refused_with_the_target_that_fits_them(
    made: Made, other: Made, mongo_database: Database[Document], postgres_dsn: str, tmp_path: Path
) -> None:
    prepare(other, postgres_dsn)
    settings = settings_for(mongo_database, postgres_dsn, profile="celery-results", target=TargetSettings(made.target))
    config = write_config(tmp_path, settings)
    for options in ((), ("--make-tables",)):
        status, _, words = run("target", "prepare", *options, "--config", str(config))
        assert status == USAGE
        assert f"are those of celery {other.shape}." in words
        fitting = words.strip().rpartition("let [target] say ")[2]
        assert fitting == f'name = "{other.target}"'
    text = config.read_text(encoding="utf-8").replace(f'name = "{made.target}"', fitting)
    config.write_text(text, encoding="utf-8")
    status, _, words = run("target", "prepare", "--config", str(config))
    assert status == 0, words
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA migration_{other.target.replace('-', '_')} CASCADE".encode())
        connection.execute("ALTER TABLE celery_taskmeta ADD COLUMN more text")
    status, _, words = run("target", "prepare", "--config", str(config))
    assert (status, "are those of no known version" in words) == (USAGE, True), words


def test_a_pickle_is_not_executed(mongo_database: Database[Document], postgres_dsn: str, tmp_path: Path) -> None:
    class Planted:
        def __reduce__(self) -> Any:  # noqa: ANN401 - as object's
            return __import__("os").system, (f"touch {tmp_path / 'executed'}",)

    payload = Binary(pickle.dumps([Planted()]))
    mongo_database[TASKS].insert_one(task("planted", result=payload, args=[1]))
    mongo_database[GROUPS].insert_one({"_id": "planted", "result": payload, "date_done": DONE})
    settings = prepared(OLD, mongo_database, postgres_dsn)
    assert backfill(settings, Scope()).quarantined == 1
    assert compared(settings) == []
    [(stored,)] = rows(settings, "SELECT result FROM celery_taskmeta")
    assert bytes(stored) == bytes(payload)
    ask(OLD, PostgresStore(postgres_dsn), "entries", options={"serializer": "pickle"})
    assert not (tmp_path / "executed").exists()


def test_a_cutover_to_the_older_tables_is_refused(
    mongo_database: Database[Document], postgres_dsn: str, tmp_path: Path
) -> None:
    """Celery 5.6 writes pickles of its own: the tool makes no text of them that Celery reads in MongoDB."""
    mongo_database[TASKS].insert_one(task("a"))
    settings = prepared(OLD, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    caught_up(settings)
    conditions = GateOptions(config=write_config(tmp_path, settings))
    passed, words = gate(settings, conditions, "reverse sync")
    assert passed is False
    assert words.endswith(
        "Celery 5.6 writes results and groups as pickles of its own, of which no text is made that it reads in MongoDB;"
        f" {gates.WITHOUT_A_CUTOVER}"
    )
    assert gate(settings, conditions, "parity check")[0] is False
    with pytest.raises(RefusedError) as refused:
        library_cutover.run(settings, conditions)
    assert str(refused.value) == f"the cutover is refused: reverse sync: {words}", "no other gate counts then"
    _, out, _ = run("cutover", "plan", "--config", str(conditions.config))
    assert out.splitlines()[-1] == "not ready, because of reverse sync; nothing was changed"


def test_what_celery_changes_in_either_table_goes_back_to_its_document_alone(
    mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    """Each document makes one row: a task of the one table, a group of the other."""
    mongo_database[TASKS].insert_many([task("a", ours="kept"), task("b")])
    mongo_database[GROUPS].insert_many(real_documents(f"celery-results/{GROUPS}"))
    settings = prepared(NEW, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    caught_up(settings)
    before = contents(mongo_database)
    group = rows(settings, "SELECT taskset_id FROM celery_tasksetmeta ORDER BY 1")[0][0]
    with open_target(settings, autocommit=True) as target:
        tables = library_tables(settings)
        assert tables is not None
        tables.open_outbox(target)
    later = "'2026-11-25 06:07:08'"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"UPDATE celery_taskmeta SET status = 'STARTED', date_done = {later} WHERE task_id = 'a'")
        connection.execute(f"UPDATE celery_tasksetmeta SET date_done = {later} WHERE taskset_id = %s", (group,))
        connection.execute(  # children is null, as Celery writes it for a task that has started no other
            "INSERT INTO celery_taskmeta (id, task_id, date_done, status, result)"
            f" SELECT nextval('task_id_sequence'), 'new', {later}, status, result"
            " FROM celery_taskmeta WHERE task_id = 'b'"
        )
    done = reverse_sync.run(settings, noted_by_now=True)
    assert (done.documents, done.removed) == (3, 0)
    after = contents(mongo_database)
    at = datetime(2026, 11, 25, 6, 7, 8)  # noqa: DTZ001 - as BSON has it
    assert after[TASKS]["a"] == before[TASKS]["a"] | {"status": "STARTED", "date_done": at}
    assert after[GROUPS][group] == before[GROUPS][group] | {"date_done": at}
    assert (after[TASKS]["new"]["status"], after[TASKS]["new"]["date_done"]) == ("SUCCESS", at)
    for name, changed in {TASKS: {"a", "new"}, GROUPS: {group}}.items():
        assert {key: one for key, one in after[name].items() if key not in changed} == {
            key: one for key, one in before[name].items() if key not in changed
        }
    answer = ask(NEW, MongoStore(mongo_server.uri, mongo_database.name), "entries", options={"serializer": "json"})
    states = {line["id"]: line["fields"]["state"] for line in answer[:-1] if "fields" in line}
    assert (states["a"], states["b"], states["new"]) == ("STARTED", "SUCCESS", "SUCCESS"), "as Celery reads them there"


SERIALIZERS: dict[str, Callable[[Any], bytes]] = {
    "json": lambda value: json.dumps(value).encode(),
    "pickle": lambda value: pickle.dumps(value, protocol=4),
    "msgpack": msgpack.packb,
    "yaml": lambda value: yaml.safe_dump(value).encode(),
}
"""As Kombu calls them."""
TASK = {"result": [1.5, "\U0001f600"], "args": (1, "a", {"b": [None]}), "kwargs": {"c": True}}
CHILDREN = [(("child", (("parent", None), None)), None), (("of it", None), [(("member", None), None)])]
"""As ``as_tuple`` of a result that another one started, and of a group."""
SMALL: tuple[Any, ...] = (5, 200, -1, True, None, "x" * 150, {}, [])
"""Results of which MessagePack writes bytes that are UTF-8 too, and others."""


def stored(settings: Settings, key: str, columns: dict[str, Any]) -> None:
    """Insert a task as Celery does."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    values = sql.SQL(", ").join(map(sql.Placeholder, columns))
    with psycopg.connect(settings.postgres.dsn or "") as connection:
        connection.execute(
            sql.SQL(
                "INSERT INTO celery_taskmeta (id, task_id, status, date_done, {names})"
                " VALUES (nextval('task_id_sequence'), %(key)s, 'SUCCESS', '2026-11-25 06:07:08', {values})"
            ).format(names=names, values=values),
            columns | {"key": key},
        )


@pytest.fixture
def written(mongo_database: Database[Document], postgres_dsn: str) -> Settings:
    """Tables whose changes are carried to MongoDB."""
    mongo_database[TASKS].insert_one(task("copied"))
    settings = prepared(NEW, mongo_database, postgres_dsn)
    backfill(settings, Scope())
    caught_up(settings)
    with open_target(settings, autocommit=True) as target:
        tables = library_tables(settings)
        assert tables is not None
        tables.open_outbox(target)
    return settings


@pytest.mark.proves("6-T3")
@pytest.mark.parametrize("serializer", SERIALIZERS)
def test_what_celery_writes_with_any_serializer_goes_back(
    serializer: str, written: Settings, mongo_server: MongoServer, mongo_database: Database[Document], postgres_dsn: str
) -> None:
    dump = SERIALIZERS[serializer]
    columns = {name: dump(value) for name, value in TASK.items()} | {"children": dump(CHILDREN)}
    stored(written, "task", columns | {"name": "shop.add"})
    small = SMALL if serializer == "msgpack" else SMALL[:1]
    for number, value in enumerate(small):
        stored(written, f"small {number}", {"result": dump(value)})
    group = [["group", None], [[["task", None], None], [["small 0", None], None]]]
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO celery_tasksetmeta (id, taskset_id, result)"
            " VALUES (nextval('taskset_id_sequence'), 'group', %s)",
            (dump(group),),
        )
    assert reverse_sync.run(written, noted_by_now=True).lost == {}
    sides = MongoStore(mongo_server.uri, mongo_database.name), PostgresStore(postgres_dsn)
    options = {"serializer": serializer}
    in_mongo, in_postgres = (
        {line.get("id"): line for line in ask(NEW, one, "entries", options=options)} for one in sides
    )
    expected = {"task", "group", *(f"small {number}" for number in range(len(small)))}
    assert {key for key, line in in_mongo.items() if line["kind"] == "entry"} >= expected
    fields = {key: in_mongo[key].get("fields") or {} for key in expected}
    assert fields["task"]["children"] == ["child", "of it"]
    assert fields["task"]["kwargs"] == {"dict": [["c", True]]}
    assert in_mongo["group"]["group"] == in_postgres["group"]["group"] == ["task", "small 0"]
    as_list = json.loads(json.dumps(in_postgres["task"]["fields"]).replace('"tuple"', '"list"'))  # as BSON has a tuple
    assert fields["task"] == as_list
    for number in range(len(small)):
        assert in_mongo[f"small {number}"]["fields"] == in_postgres[f"small {number}"]["fields"]
    with open_target(written, autocommit=True) as target:
        tables = library_tables(written)
        assert tables is not None
        tables.close_outbox(target)


def test_what_is_not_read_is_a_loss_by_name_and_the_result_is_read(
    written: Settings, mongo_server: MongoServer, mongo_database: Database[Document], tmp_path: Path
) -> None:
    class Planted:
        def __reduce__(self) -> Any:  # noqa: ANN401 - as object's
            return __import__("os").system, (f"touch {tmp_path / 'executed'}",)

    packed = b"\0celery-compressed\0application/x-gzip\0" + zlib.compress(b"[]")
    merge = b"- a: &a {x: 1}\n- <<: *a\n"
    stored(written, "compressed", {"result": packed, "children": packed, "args": packed})
    stored(written, "planted", {"result": pickle.dumps(1), "children": pickle.dumps([Planted()])})
    stored(written, "of a class", {"result": pickle.dumps(1), "args": pickle.dumps([Path()])})
    stored(written, "merged", {"result": b"1\n...\n", "children": merge, "kwargs": b"!!python/name:os.system ''\n"})
    lost = reverse_sync.run(written, noted_by_now=True).lost
    place = f"{NEW.target}/{TASKS}"
    assert lost == {(place, "args"): 2, (place, "children"): 3, (place, "kwargs"): 1}
    documents = {one["_id"]: one for one in mongo_database[TASKS].find()}
    for key in ("compressed", "planted", "of a class", "merged"):
        assert documents[key]["children"] is None
    assert not (tmp_path / "executed").exists()
    for key, serializer in (
        ("compressed", "json"),
        ("planted", "pickle"),
        ("of a class", "pickle"),
        ("merged", "yaml"),
    ):
        store = MongoStore(mongo_server.uri, mongo_database.name)
        entries = {line.get("id"): line for line in ask(NEW, store, "entries", options={"serializer": serializer})}
        assert entries[key]["fields"]["children"] == []


def contents(database: Database[Document]) -> dict[str, dict[Any, Document]]:
    return {name: {one["_id"]: one for one in database[name].find()} for name in (TASKS, GROUPS)}
