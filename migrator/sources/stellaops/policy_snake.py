"""The snake_case documents of ``policy_runs``: an older writer's spelling of the same thing.

The row is that of any policy run, its jsonb in camelCase; a schema version of our own says which spelling the document
had, so that a clean one leaves no residue.
"""

from collections.abc import Mapping
from typing import Any

from migrator.records import PolicyJob
from migrator.sources.order import arranger
from migrator.sources.profile import Context, Decoded, Document, Note, Rows
from migrator.sources.shapes import choice, filled, indexed, keys, plain, read
from migrator.sources.stellaops import ids, names
from migrator.sources.stellaops.policy_shapes import SnakeDocument, SnakeInputs, SnakeStats
from migrator.values import identity, jsonb

_TO_CAMEL = {
    "sbom_set": "sbomSet",
    "advisory_cursor": "advisoryCursor",
    "vex_cursor": "vexCursor",
    "env": "environment",
    "rules_fired": "rulesFired",
    "findings_written": "findingsWritten",
    "vex_overrides": "vexOverrides",
    "duration_seconds": "durationSeconds",
}
_TO_SNAKE = {camel: snake for snake, camel in _TO_CAMEL.items()}

_SNAKE_ONLY = frozenset({"policy_id", "policy_version", "tenant", "tenant_id"})

_NAMES = keys(SnakeDocument)
_inputs, _stats = arranger(SnakeInputs), arranger(SnakeStats)


def is_snake(document: Document) -> bool:
    """Tell whether a document of ``policy_runs`` is spelled with underscores."""
    return "policyId" not in document and not _SNAKE_ONLY.isdisjoint(document)


def decode(document: Document, context: Context) -> Decoded:
    """Return the row; the document's ``_id`` is the name of the run."""
    found = read(document, SnakeDocument)
    notes: list[Note] = []
    tenant = ids.tenant_of(
        ids.first_said(found.tenant, found.tenant_id, found.tenant_id_camel), context, notes, path="tenant"
    )
    source_id = identity.source_id(found.key)
    status = choice(found.status, names.POLICY_STATUSES, "status")
    if status != found.status:
        notes.append(Note("alias", "status"))
    row = PolicyJob(
        id=identity.row_id("policy_jobs", tenant, names.POLICY_RUNS, source_id),
        tenant_id=tenant,
        source=names.source(names.POLICY_RUNS),
        source_id=source_id,
        policy_id=plain(found.policy_id, "policy_id"),
        policy_version=found.policy_version,
        mode=None if found.mode is None else choice(found.mode, names.POLICY_MODES, "mode"),
        status=status,
        run_id=indexed(found.key, "_id") if type(found.key) is str else None,
        inputs=None if found.inputs is None else jsonb.encode(_renamed(document["inputs"], _TO_CAMEL)),
        stats=None if found.stats is None else jsonb.encode(_renamed(document["stats"], _TO_CAMEL)),
        schema_version=names.POLICY_SNAKE_VERSION,
    )
    return Decoded((row,), tuple(notes))


def _renamed(value: Mapping[str, Any], table: Mapping[str, str]) -> dict[str, Any]:
    """Return the members under their other names; where two would meet, the spelling that is documented wins."""
    renamed = {key: member for key, member in value.items() if key not in table}
    renamed.update((table[key], member) for key, member in value.items() if key in table)
    return renamed


def encode(rows: Rows) -> Document:
    """Return the document of a row."""
    row: Any = rows[0]
    return filled(
        _NAMES,
        (
            identity.parse_source_id(row.source_id),
            row.tenant_id,
            row.policy_id,
            row.policy_version,
            row.mode,
            row.status,
            None if row.inputs is None else _inputs(_renamed(jsonb.decode(row.inputs), _TO_SNAKE)),
            None if row.stats is None else _stats(_renamed(jsonb.decode(row.stats), _TO_SNAKE)),
        ),
    )
