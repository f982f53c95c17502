"""Corruptions of the tool's own tables, each planted in a copy of a copied database: what sees it, or why none need.

The list is data. A corruption with checks must turn each of them red; one with a reason must turn none red.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import pytest

from migrator.report.areas import MutationKind
from migrator.testing.mutations.mutation import Mutation, ddl
from migrator.verify.registry import EVERY_CHECK
from migrator.verify.scratch_databases import ScratchDatabases
from migrator.verify.sensitivity.trials import Trial, run_trials
from tests.declared_catalogue import declared_once
from tests.integration import test_sensitivity

settings, sampled = test_sensitivity.settings, test_sensitivity.sampled
LEFT_OUT: Final = ("parity.aggregates", "parity.columns")
SPECS = tuple(
    spec for spec in EVERY_CHECK if spec.area in ("parity", "schema", "semantics") and spec.id not in LEFT_OUT
)


class Corruption(msgspec.Struct, frozen=True):
    """What is done to the tool's own tables."""

    name: str
    statement: str
    seen_by: tuple[str, ...] = ()
    harmless: str = ""
    """Why no check need see it."""
    kind: MutationKind = "data"


PLAN = "(SELECT id FROM migration.plans ORDER BY created_at DESC, id LIMIT 1)"
CHUNK = (
    "(SELECT ctid FROM migration.chunks WHERE state = 'done' AND documents > 0 ORDER BY collection, ordinal LIMIT 1)"
)
ENTRY = "(SELECT id FROM migration.quarantine WHERE state = 'open' ORDER BY id LIMIT 1)"
CUTOVER = (
    "INSERT INTO migration.cutovers (id, environment, state, config_path, backup_path, tool_version, began_at)"
    " VALUES (gen_random_uuid(), 'x', '{}', '', '', '0', now(){})"
)
STEP = (
    CUTOVER.format("aborted", "") + "; INSERT INTO migration.cutover_steps (cutover_id, ordinal, step, state, ended_at)"
    " SELECT id, {} FROM migration.cutovers"
)
DECISION = (
    "INSERT INTO migration.decisions (kind, who, reason, tool_version, checksum)"
    " VALUES ('{}', '{}', 'it was urgent', '0', {})"
)
LEDGER, QUARANTINE, DOCUMENTS = ("parity.ledger",), ("parity.quarantine",), ("parity.documents",)
RESTORED, CATALOGUE = ("schema.restored",), ("schema.catalogue",)
SHOWN = "it is shown, and nothing is decided by it"


def tail(values: str) -> str:
    """Return an INSERT of the tail's position, of the source of the copy, with other values in some columns."""
    given = {
        "profile": "plan.profile",
        "source_identity": "plan.source_identity",
        "position": "'\\x00'::bytea",
        "position_at": "now()",
        "last_event_at": "NULL",
        "events": "0",
    } | dict(part.split(" = ") for part in values.split("; ") if part)
    return (
        f"INSERT INTO migration.tail ({', '.join(given)}) SELECT {', '.join(given.values())}"
        f" FROM migration.plans AS plan WHERE id = {PLAN}"
    )


def plan(change: str) -> str:
    return f"UPDATE migration.plans SET {change} WHERE id = {PLAN}"


def chunk(change: str) -> str:
    return f"UPDATE migration.chunks SET {change} WHERE ctid = {CHUNK}"


def entry(change: str) -> str:
    return f"UPDATE migration.quarantine SET {change} WHERE id = {ENTRY}"


def ghost(columns: str) -> str:
    """Return an INSERT of an entry like an open one, with other values in some columns."""
    names = ("profile", "profile_version", "collection", "source_id", "source_key", "reason", "path", "expected", "raw")
    given = {name: name for name in (*names, "tool_version")} | dict(part.split(" = ") for part in columns.split("; "))
    return (
        f"INSERT INTO migration.quarantine ({', '.join(given)}, state) SELECT {', '.join(given.values())}, 'open'"
        f" FROM migration.quarantine WHERE id = {ENTRY}"
    )


CORRUPTIONS: Final = (
    # plans
    Corruption("a plan of another profile", plan("profile = 'other'"), LEDGER),
    Corruption("a plan of another source", plan("source_identity = 'elsewhere/db'"), LEDGER),
    Corruption("a plan with other settings", plan("config_digest = 'sha256:0'"), LEDGER),
    Corruption("a plan with another context", plan("context = context || '{\"x\": 1}'"), LEDGER),
    Corruption("a plan of another day", plan("as_of = as_of - interval '1 day'"), LEDGER),
    Corruption("a plan of another version", plan("profile_version = profile_version + 1"), LEDGER),
    Corruption("a plan that is open again", plan("state = 'open'"), LEDGER),
    Corruption("a plan without its place in the change stream", plan("stream_position = '\\x00'"), LEDGER),
    Corruption("a plan whose checksum is another", plan("checksum = sha256('x')"), LEDGER),
    Corruption("a plan that was made at another time", plan("created_at = created_at - interval '1 s'"), (), SHOWN),
    # chunks
    Corruption("a chunk with other bounds", chunk("min_id = '\\x00'"), LEDGER),
    Corruption("a chunk with an upper bound", chunk("max_id = '\\x00'"), LEDGER),
    Corruption("a chunk of other rows", chunk("rows = '{\"runs\": 7}'"), LEDGER),
    Corruption("a chunk that wrote something else", chunk("written = '{\"runs\": 7}'"), LEDGER),
    Corruption("a chunk of other documents", chunk("digest = sha256('x')"), LEDGER),
    Corruption("a chunk with more in quarantine", chunk("quarantined = quarantined + 1"), LEDGER),
    Corruption("a chunk with more left out", chunk("skipped = skipped + 1"), LEDGER),
    Corruption("a chunk of other bytes", chunk("bytes = bytes + 1"), LEDGER),
    Corruption("a chunk that was not copied", chunk("state = 'pending'"), LEDGER),
    Corruption("a chunk without its end", chunk("finished_at = NULL"), LEDGER),
    Corruption("a chunk that ended before it began", chunk("finished_at = started_at - interval '1 s'"), LEDGER),
    Corruption("a chunk is gone", f"DELETE FROM migration.chunks WHERE ctid = {CHUNK}", LEDGER),
    Corruption(
        "a chunk too many",
        f"INSERT INTO migration.chunks (plan_id, collection, ordinal, state) VALUES ({PLAN}, 'runs', 999, 'pending')",
        LEDGER,
    ),
    Corruption("a chunk of another estimate", chunk("estimated = estimated + 1"), (), SHOWN),
    Corruption("a chunk of another process", chunk("worker = 'elsewhere'"), (), SHOWN),
    # notes: the fields that went into the remainder, what was found, what was left out
    Corruption("a note counts more", "UPDATE migration.notes SET documents = documents + 1", LEDGER),
    Corruption("a note of another field", "UPDATE migration.notes SET path = path || 'x'", LEDGER),
    Corruption("notes of lost fields are gone", "DELETE FROM migration.notes WHERE class = 'remainder'", LEDGER),
    Corruption(
        "a note is of another kind", "UPDATE migration.notes SET class = 'skip' WHERE class = 'finding'", LEDGER
    ),
    Corruption(
        "a note of a chunk that does not exist",
        "INSERT INTO migration.notes (plan_id, collection, ordinal, class, kind, path, documents)"
        f" VALUES ({PLAN}, 'runs', 999, 'finding', 'orphan', '', 1)",
        LEDGER,
    ),
    # quarantine
    Corruption(
        "a ghost of a document that the source does not have",
        ghost("source_id = 'a ghost'; source_key = sha256('a ghost')"),
        QUARANTINE,
    ),
    Corruption(
        "a ghost of a collection that does not exist",
        ghost("collection = 'ghosts'"),
        QUARANTINE,
    ),
    Corruption("a ghost of another source", ghost("profile = 'ghosts'"), LEDGER),
    Corruption("an entry under another key", entry("source_key = sha256('x')"), LEDGER),
    Corruption("an entry of another document", entry("source_id = source_id || 'x'"), (*QUARANTINE, *LEDGER)),
    Corruption("an entry without bytes", entry("raw = ''"), QUARANTINE),
    Corruption("an entry with bytes of no document", entry("raw = '\\x0102030405'"), QUARANTINE),
    Corruption("an entry with another reason", entry("reason = 'out-of-range-x'"), QUARANTINE),
    Corruption("an entry with another path", entry("path = path || '.x'"), QUARANTINE),
    Corruption("an open entry with an end", entry("resolved_at = now()"), LEDGER),
    Corruption(
        "a dropped entry without a time",
        entry("state = 'dropped', dropped_by = 'me', dropped_because = 'so'"),
        LEDGER,
    ),
    Corruption("an entry that was replaced by nothing", entry("state = 'superseded', resolved_at = now()"), DOCUMENTS),
    Corruption("an entry of another tool", entry("tool_version = '9'"), (), SHOWN),
    Corruption("an entry that came at another time", entry("created_at = created_at - interval '1 s'"), (), SHOWN),
    Corruption("an entry of no plan", entry("plan_id = NULL"), (), "an entry outlives its plan: backfill --restart"),
    # links, references, documents that are pending
    Corruption(
        "a link that waits for ever",
        "INSERT INTO migration.pending_links (collection, record_table, row_id, column_name, target_table, target_id,"
        " tenant_id) SELECT 'runs', 'runs', id, 'retry_of', 'runs', gen_random_uuid(), tenant_id FROM scheduler.runs"
        " LIMIT 1",
        LEDGER,
    ),
    Corruption(
        "dangling references of one collection are gone",
        "DELETE FROM migration.dangling_references WHERE collection = (SELECT min(collection)"
        " FROM migration.dangling_references)",
        LEDGER,
    ),
    Corruption(
        "a dangling reference to another row",
        "UPDATE migration.dangling_references SET target_id = gen_random_uuid()",
        LEDGER,
    ),
    Corruption(
        "a dangling reference to no table",
        "UPDATE migration.dangling_references SET target_table = 'nowhere'",
        LEDGER,
    ),
    Corruption(
        "a dangling reference under another key",
        "UPDATE migration.dangling_references SET source_key = sha256('x') WHERE ctid = (SELECT min(ctid) FROM"
        " migration.dangling_references)",
        LEDGER,
    ),
    Corruption(
        "a document that is pending under another key",
        "INSERT INTO migration.pending_documents VALUES ('runs', sha256('x'), 'a ghost')",
        LEDGER,
    ),
    Corruption(
        "a document that is pending and does not exist",
        "INSERT INTO migration.pending_documents VALUES ('runs', sha256('a ghost'), 'a ghost')",
        (),
        "the next tail reads the document again, finds none, and forgets it",
    ),
    # indexes that a first load removed
    Corruption(
        "an index that is still missing",
        "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition)"
        " VALUES ('runs', 'index', 'ix_gone', 'CREATE INDEX')",
        RESTORED,
        kind="schema",
    ),
    Corruption(
        "an index is gone, and the record says that it was restored",
        "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition, restored_at)"
        " VALUES ('runs', 'index', 'ix_runs_page', 'CREATE INDEX', now()); DROP INDEX scheduler.ix_runs_page",
        CATALOGUE,
        kind="schema",
    ),
    Corruption(
        "an index of no table",
        "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition, restored_at)"
        " VALUES ('nowhere', 'index', 'ix_gone', 'CREATE INDEX', now())",
        LEDGER,
    ),
    Corruption(
        "an index that was restored before it was dropped",
        "INSERT INTO migration.deferred_ddl (target_table, kind, name, definition, restored_at)"
        " VALUES ('runs', 'index', 'ix_runs_page', 'CREATE INDEX', '2020-01-01')",
        LEDGER,
    ),
    # the tail
    Corruption("a tail of another source", tail("source_identity = 'elsewhere'"), LEDGER),
    Corruption("a tail of another profile", tail("profile = 'other'"), LEDGER),
    Corruption("a tail of the future", tail("position_at = now() + interval '1 year'"), LEDGER),
    Corruption("a tail behind its own event", tail("last_event_at = now() + interval '1 hour'"), LEDGER),
    Corruption("a tail that counts below zero", tail("events = -1"), LEDGER),
    Corruption(
        "a tail at another position",
        tail("position = '\\x01'"),
        (),
        "parity compares every document, whatever the tail's position says; the tail refuses one that it cannot read",
    ),
    # journal and outbox
    Corruption("a cutover that the scheduler does not know", CUTOVER.format("cut-over", ""), LEDGER),
    Corruption("a cutover that was finished and never was", CUTOVER.format("finished", ""), LEDGER),
    Corruption(
        "two cutovers at once",
        f"{CUTOVER.format('running', '')}; {CUTOVER.format('running', ' - interval ' + chr(39) + '1 h' + chr(39))}",
        LEDGER,
    ),
    Corruption(
        "a cutover that ended before it began",
        CUTOVER.format("aborted", "") + "; UPDATE migration.cutovers SET ended_at = began_at - interval '1 s'",
        LEDGER,
    ),
    Corruption("a step without its end", STEP.format("1, 'fence', 'done', NULL"), LEDGER),
    Corruption("a step that ended before it began", STEP.format("1, 'fence', 'done', '2020-01-01'"), LEDGER),
    Corruption(
        "two steps in one place",
        STEP.format("1, one, 'done', now() + interval '1 s'") + ", unnest(ARRAY['fence', 'open-target']) AS one",
        LEDGER,
    ),
    Corruption(
        "an aborted cutover that never was",
        CUTOVER.format("aborted", ""),
        (),
        "it decides nothing: a cutover begins anew after an aborted one",
    ),
    Corruption(
        "a note in an outbox that is not open",
        "INSERT INTO migration.outbox (table_name, row_id, tenant_id) VALUES ('runs', gen_random_uuid(), 'a')",
        LEDGER,
    ),
    # decisions, parity checks, limits
    Corruption(
        "a decision by another person",
        DECISION.format("cutover", "me", "sha256('x')"),
        LEDGER,
    ),
    Corruption("a decision by nobody", DECISION.format("cutover", "", "NULL"), LEDGER),
    Corruption(
        "a parity check that found nothing and never was",
        "INSERT INTO migration.parity_checks (id, finished_at, complete, clean, checksum)"
        " VALUES (gen_random_uuid(), now(), true, true, sha256('x'))",
        LEDGER,
    ),
    Corruption(
        "a parity check without an end",
        "INSERT INTO migration.parity_checks (id, complete, clean) VALUES (gen_random_uuid(), true, true)",
        LEDGER,
    ),
    Corruption(
        "a limit below zero",
        "INSERT INTO migration.control (name, value, who, reason) VALUES ('max_rate', -1, 'me', '')",
        LEDGER,
    ),
    Corruption(
        "a limit that is no number",
        "INSERT INTO migration.control (name, value, who, reason) VALUES ('max_rate', 'NaN', 'me', '')",
        LEDGER,
    ),
    Corruption(
        "a call that never was",
        "INSERT INTO migration.tool_runs (id, command, tool_version, host) VALUES (gen_random_uuid(), 'x', '0', 'x')",
        (),
        SHOWN,
    ),
    Corruption(
        "a next fire that the old scheduler never planned",
        "INSERT INTO migration.planned_fires (collection, source_id, seen_at) VALUES ('schedules', 'x', now())",
        (),
        "read while a parallel run is in progress only, whose beginning forgets it",
    ),
    # the books of the revisions
    Corruption(
        "a revision of another file",
        "UPDATE migration.schema_history SET sha256 = repeat('0', 64)",
        ("schema.revision",),
        kind="schema",
    ),
    Corruption(
        "a revision that was never applied is the newest",
        "UPDATE migration.schema_revision SET version_num = '0008'",
        ("schema.revision",),
        kind="schema",
    ),
)


@pytest.fixture(scope="module")
def trials(sampled: ScratchDatabases) -> Iterator[dict[str, Trial]]:
    """What became of each corruption, each in a clone of its own."""
    classes = [
        Mutation(name=one.name, kind=one.kind, apply=ddl(one.statement), caught_by=one.seen_by) for one in CORRUPTIONS
    ]
    with declared_once():
        yield {one.name: one for one in run_trials(sampled, classes, SPECS)}


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda one: one.name)
def test_a_corruption_of_the_tools_own_tables_is_seen_or_does_no_harm(
    corruption: Corruption, trials: dict[str, Trial]
) -> None:
    trial = trials[corruption.name]
    assert bool(corruption.seen_by) != bool(corruption.harmless)
    assert {*corruption.seen_by} <= {*trial.failed}, trial
    assert trial.ending == ("caught" if corruption.seen_by else "missed"), trial


def test_there_are_sixty_of_them_and_each_once() -> None:
    assert len({one.statement for one in CORRUPTIONS}) == len(CORRUPTIONS) >= 60
