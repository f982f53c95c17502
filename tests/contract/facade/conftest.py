"""The facade on every backend of the suite."""

import pytest

from migrator.store.protocols import Store
from migrator.verify.behaviour.harness import Clock, Harness
from tests.contract.rows import NOW, fresh


@pytest.fixture
def harness(at_work: Store, tenant: str) -> Harness:
    return Harness(at_work, (tenant, fresh()), clock=Clock(NOW))
