"""The suite leaves no method of a repository out, and no backend has one less."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

from migrator.store.ports import SchedulerStore, Session, Store
from migrator.store.work import Locks, Queue, Workers
from tests.contract.rows import NOW

SUITE = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
PROVED_BY = {
    "schedules": "0-T2.3.4",
    "runs": "0-T2.4.4",
    "graph_jobs": "0-T2.5.3",
    "policy_jobs": "0-T2.6.3",
    "impact_snapshots": "0-T2.7.3",
}


def methods() -> Iterator[tuple[str, str]]:
    for name, member in vars(Session).items():
        if isinstance(member, property) and name not in {"tenant", "now"}:
            protocol = get_type_hints(member.fget)["return"]
            yield from ((name, method) for method in vars(protocol) if not method.startswith("_"))


ALL = sorted(methods())


@pytest.mark.parametrize(
    ("repository", "method"),
    [pytest.param(*each, marks=pytest.mark.proves(PROVED_BY[each[0]]) if each[0] in PROVED_BY else ()) for each in ALL],
)
def test_every_method_is_called_and_there(repository: str, method: str, store: Store, tenant: str) -> None:
    assert f"session.{repository}.{method}(" in SUITE
    with store.session(tenant, now=NOW) as session:
        found = getattr(getattr(session, repository), method)
    protocol = get_type_hints(vars(Session)[repository].fget)["return"]
    assert (
        list(inspect.signature(found).parameters) == list(inspect.signature(getattr(protocol, method)).parameters)[1:]
    )


def test_the_methods_are_looked_up_in_the_ports() -> None:
    assert len({repository for repository, _ in ALL}) == 11
    assert ("runs", "list") in ALL


ACROSS = {"queue": Queue, "workers": Workers, "locks": Locks}
PARTS = sorted((part, method) for part, port in ACROSS.items() for method in vars(port) if not method.startswith("_"))


@pytest.mark.proves("0-T2.9.4")
@pytest.mark.parametrize(("part", "method"), PARTS)
def test_every_method_across_tenants_is_called_and_there(part: str, method: str, at_work: SchedulerStore) -> None:
    assert f" {part}.{method}(" in SUITE or f"({part}.{method}(" in SUITE or f"[{part}.{method}(" in SUITE
    found, port = getattr(getattr(at_work, part), method), getattr(ACROSS[part], method)
    assert list(inspect.signature(found).parameters) == list(inspect.signature(port).parameters)[1:]


def test_the_other_half_is_looked_up_too() -> None:
    assert ("queue", "fire_due") in PARTS
    assert len(PARTS) == 17
