"""Policy runs in both spellings, and work items."""

from uuid import UUID

import msgspec
import pytest

from migrator.sources.profile import Note, Rejected
from migrator.sources.store_documents import names
from migrator.values import jsonb
from tests.stellaops_documents import CONTEXT, fresh, travel

CAMEL, SNAKE = 0, 1


def test_a_status_document_and_a_work_item_are_rows_of_their_own() -> None:
    run, job = travel("policy_runs", fresh("policy_runs")).row, travel("policy_jobs", fresh("policy_jobs")).row
    assert run.run_id == job.run_id == "run:P-11:2025-11-02:manual"
    assert (run.source, job.source) == ("stellaops/policy_runs", "stellaops/policy_jobs")
    assert (run.attempt_count, run.last_error) == (1, "none")
    assert (job.status, job.priority_rank, job.cancellation_requested) == ("canceled", 0, True)
    assert job.finished_at == job.submitted_at.replace(second=8)


def test_only_the_first_named_collection_keeps_a_uuid() -> None:
    digits = "9e1b3d5f7a9c4e6b8d0f2a4c6e8b0d1f"
    assert travel("policy_jobs", fresh("policy_jobs")).row.id != UUID(digits)
    assert travel("policy_runs", fresh("policy_runs", _id=f"prj_{digits}")).row.id == UUID(digits)


def test_the_older_spelling_becomes_the_same_columns() -> None:
    trip = travel("policy_runs", fresh("policy_runs", SNAKE))
    row = trip.row
    assert (row.tenant_id, row.policy_id, row.policy_version, row.status) == ("tenant-a", "P-7", 4, "queued")
    assert row.run_id == "run:P-7:2025-10-26T14:05:11Z:3f9a"
    assert row.schema_version == names.POLICY_SNAKE_VERSION
    assert jsonb.decode(row.inputs)["sbomSet"] == ["sbom:S-318"]
    assert jsonb.decode(row.inputs)["environment"] == {"exposure": "internet"}
    assert jsonb.decode(row.stats)["findingsWritten"] == 2


@pytest.mark.parametrize("field", ["tenant_id", "tenantId"])
def test_the_older_spelling_may_name_its_tenant_otherwise(field: str) -> None:
    made = fresh("policy_runs", SNAKE, tenant=...) | {field: "tenant-b"}
    trip = travel("policy_runs", made)
    assert trip.row.tenant_id == "tenant-b"
    assert trip.fields == {"tenant", field}
    assert trip.notes == ()


def test_the_older_spelling_without_a_tenant_gets_the_configured_one() -> None:
    trip = travel("policy_runs", fresh("policy_runs", SNAKE, tenant=...))
    assert trip.row.tenant_id == "fallback"
    assert trip.notes == (Note("tenant-defaulted", "tenant"),)
    assert trip.fields == {"tenant"}
    with pytest.raises(Rejected, match="no-tenant"):
        travel(
            "policy_runs",
            fresh("policy_runs", SNAKE, tenant=...),
            msgspec.structs.replace(CONTEXT, default_tenant=None),
        )


def test_members_that_would_meet_in_one_name_both_come_back() -> None:
    made = fresh("policy_runs", SNAKE)
    made["inputs"]["sbomSet"] = ["another"]
    trip = travel("policy_runs", made)
    assert jsonb.decode(trip.row.inputs)["sbomSet"] == ["sbom:S-318"]
    assert trip.fields == {"inputs.sbomSet"}


@pytest.mark.parametrize("collection", ["policy_runs", "policy_jobs"])
def test_the_british_spelling_of_canceled_is_an_alias(collection: str) -> None:
    trip = travel(collection, fresh(collection, status="cancelled"))
    assert trip.row.status == "canceled"
    assert trip.notes == (Note("alias", "status"),)
    assert trip.fields == {"status"}


def test_values_of_the_environment_may_be_any_json() -> None:
    odd: dict[str, object] = {"flag": True, "n": 2.5, "none": None, "Key": 1, "key": 2, "list": [{"a": []}]}
    trip = travel("policy_runs", fresh("policy_runs", inputs__environment=odd))
    assert jsonb.decode(trip.row.inputs)["environment"] == odd
    assert trip.remainder == b"{}"


def test_what_json_cannot_hold_lies_in_the_remainder() -> None:
    odd = {"nan": float("nan"), "minus": -0.0, "nul": "a\0b"}
    trip = travel("policy_runs", fresh("policy_runs", inputs__environment=odd))
    assert trip.fields == {f"inputs.environment.{name}" for name in odd}


def test_metadata_keys_that_differ_only_in_case_stay_apart() -> None:
    trip = travel("policy_runs", fresh("policy_runs", metadata={"SbomEventId": "1", "sbomeventid": "2"}))
    assert jsonb.decode(trip.row.metadata) == {"SbomEventId": "1", "sbomeventid": "2"}
    assert trip.remainder == b"{}"


def test_a_run_that_finished_before_it_started_is_found() -> None:
    trip = travel("policy_runs", fresh("policy_runs", finishedAt="2025-11-02T07:00:00+00:00"))
    assert trip.notes == (Note("finished-before-started", "finishedAt"),)


def test_fields_without_a_column_are_remainder() -> None:
    made = fresh("policy_runs", determinismHash="sha256:1", errorCode="E", traceId="t", explainUri="u")
    assert travel("policy_runs", made).fields == {"determinismHash", "errorCode", "traceId", "explainUri"}
