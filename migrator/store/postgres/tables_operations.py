"""Who works and what is held and told: workers, locks, audit."""

from sqlalchemy import Index, MetaData, PrimaryKeyConstraint, Table, UniqueConstraint, desc

from migrator import states
from migrator.store.postgres.columns import (
    big,
    check,
    extra,
    integer,
    jsonb,
    one_of,
    sourced,
    text,
    texts,
    time,
    uuid,
)


def declare(metadata: MetaData) -> None:
    """Add the tables to ``metadata``."""
    _workers(metadata)
    _locks(metadata)
    _audit(metadata)


def _workers(metadata: MetaData) -> None:
    Table(
        "workers",
        metadata,
        *sourced(),
        text("kind", "worker or scheduler", null=False),
        text("hostname", "where it runs"),
        integer("pid", "process on that host"),
        text("version", "of the program"),
        texts("queues", "what it takes"),
        integer("capacity", "runs at the same time"),
        text("status", "active, draining, stopped or dead", null=False),
        time("registered_at", "when it came"),
        time("last_heartbeat_at", "when it last spoke, by the database's clock"),
        jsonb("metadata", "whatever it adds"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_workers"),
        one_of("workers", "kind", states.WORKER_KINDS),
        one_of("workers", "status", states.WORKER_STATUSES),
        comment="Worker and scheduler processes, under the tenant *. Who leads is derived from locks, not stored here.",
    )


def _locks(metadata: MetaData) -> None:
    Table(
        "locks",
        metadata,
        *sourced(),
        text("key", "<tenant>/<resource>, the tenant * for global ones", null=False),
        big("lock_id", "64 bits of SHA-256 of the key: the advisory lock, the same in every process", null=False),
        uuid("owner", "one per acquire; null when free, and for migrated locks"),
        text("holder", "who, in words; a migrated lock's owner text"),
        big("fence", "rises with every acquire, also after release", null=False, default="0"),
        time("acquired_at", "when it was taken"),
        time("expires_at", "when it ends unless renewed; null: without expiry, thus live"),
        jsonb("metadata", "whatever the holder adds"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_locks"),
        UniqueConstraint("key", name="uq_locks_key"),
        check("ck_locks_key", "starts_with(key, tenant_id || '/'::text)"),
        comment="Leases on resources. The row outlives the lock, so that the fence keeps rising. The key begins with"
        " the row's tenant: nobody takes another tenant's lock.",
    )


def _audit(metadata: MetaData) -> None:
    Table(
        "audit",
        metadata,
        *sourced(),
        text("category", "of what kind", null=False),
        text("action", "what was done", null=False),
        time("occurred_at", "when", null=False),
        jsonb("actor", "by whom"),
        text("entity_id", "to what: the source's text, whatever it names"),
        uuid("schedule_id", "concerning which schedule; no foreign key"),
        uuid("run_id", "concerning which run; no foreign key"),
        text("correlation_id", "of the request"),
        text("message", "in words"),
        jsonb("metadata", "with what"),
        extra(),
        PrimaryKeyConstraint("id", "tenant_id", name="pk_audit"),
        Index("ix_audit_page", "tenant_id", desc("occurred_at"), "id"),
        comment="Audit trail: append only, without foreign keys, since it outlives what it tells of.",
    )
