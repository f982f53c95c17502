"""The facade on every backend of the suite."""

import pytest

from migrator.store.ports import SchedulerStore
from tests.contract.facade.yard import Yard


@pytest.fixture
def yard(at_work: SchedulerStore, tenant: str) -> Yard:
    return Yard(at_work, tenant)
