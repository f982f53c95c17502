"""Area isolation: tenants kept apart."""

from migrator.verify.behaviour import isolation
from migrator.verify.behaviour.behave import Script, behave
from migrator.verify.check import CheckSpec

CHECKS = (
    CheckSpec(
        id="isolation.calls",
        title="No call of the facade, and none of a repository, shows or changes a row of another tenant",
        requirements=("0-X2", "1-G4"),
        run=behave(
            Script("through the facade", isolation.facade),
            Script("through the repositories", isolation.repositories),
            tables=(
                "schedules",
                "triggers",
                "runs",
                "graph_jobs",
                "policy_jobs",
                "impact_snapshots",
                "execution_logs",
                "run_summaries",
                "audit",
                "handlers",
            ),
        ),
    ),
    CheckSpec(
        id="isolation.rows",
        title="PostgreSQL itself shows the service no row of another tenant, and takes none",
        requirements=("0-X2",),
        limits=("Only PostgreSQL has such rules; on MongoDB nothing but the repositories keeps tenants apart.",),
        run=behave(
            Script("in the service's role", isolation.rows, only=("postgres",)),
            tables=("schedules", "triggers", "runs"),
        ),
    ),
)
