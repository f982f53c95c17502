"""Run one branch of the revisions on the connection that ``migrator.schema.revisions`` lends.

It also takes the advisory lock, checks and records checksums, and names the roles; hence no way around it.
"""

from alembic import context
from alembic.util import CommandError

attributes = context.config.attributes
if "connection" not in attributes:
    raise CommandError("revisions are applied by `migrator schema upgrade` and `migrator schema downgrade`")

context.configure(
    connection=attributes["connection"],
    version_table="schema_revision",
    version_table_schema=attributes["branch"],
    on_version_apply=attributes["on_version_apply"],
    roles=attributes["roles"],
)
with context.begin_transaction():
    context.run_migrations()
