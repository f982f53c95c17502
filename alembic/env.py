"""Run one branch of the revisions on the connection that ``migrator.schema.revisions`` lends.

It also takes the advisory lock, checks and records checksums, and names the roles; hence no way around it.

A revision names tables and indexes without their schema, which is the search path: ``scheduler``, ``migration``, or the
temporary schema in which the catalogue check applies the revisions. A function is found only by its schema: the option
``schema`` has its name.
"""

from alembic import context
from alembic.util import CommandError

attributes = context.config.attributes
if "connection" not in attributes:
    raise CommandError("revisions are applied by `migrator schema upgrade` and `migrator schema downgrade`")

attributes["connection"].exec_driver_sql(f"SET LOCAL search_path = {attributes['schema']}")
context.configure(
    connection=attributes["connection"],
    version_table="schema_revision",
    version_table_schema=attributes["schema"],
    on_version_apply=attributes["on_version_apply"],
    roles=attributes["roles"],
    schema=attributes["schema"],
)
with context.begin_transaction():
    context.run_migrations()
