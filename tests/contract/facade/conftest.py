"""The facade on every backend of the suite."""

import pytest

from migrator.store.protocols import Store
from tests.contract.facade.yard import Yard


@pytest.fixture
def yard(at_work: Store, tenant: str) -> Yard:
    return Yard(at_work, tenant)
