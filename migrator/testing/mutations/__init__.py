"""Corruptions of data, of the schema and of the scheduler's behaviour, each with the checks that must see it."""

from typing import Final

from migrator.testing.mutations.behaviour import BEHAVIOUR_MUTATIONS
from migrator.testing.mutations.ledger import LEDGER_MUTATIONS
from migrator.testing.mutations.mutation import Mutation
from migrator.testing.mutations.rows import ROW_MUTATIONS, VALUE_MUTATIONS
from migrator.testing.mutations.schema import SCHEMA_MUTATIONS
from migrator.testing.mutations.triggers import TRIGGER_MUTATIONS

MUTATIONS: Final[tuple[Mutation, ...]] = (
    *ROW_MUTATIONS,
    *VALUE_MUTATIONS,
    *TRIGGER_MUTATIONS,
    *LEDGER_MUTATIONS,
    *SCHEMA_MUTATIONS,
    *BEHAVIOUR_MUTATIONS,
)
"""The mutations, in the order of the page."""
