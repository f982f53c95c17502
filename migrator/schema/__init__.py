"""The schema of the target: revisions and how they are applied, roles and rights, catalogue check.

The tables of the schema ``scheduler`` are the application's, those of ``migration`` the tool's. Alembic revisions
(``alembic/versions``) declare both: what they make is compared with the live catalogue. Nothing that an application
imports (``scheduler``, ``store``, ``records``) imports this package.
"""

from typing import Final

LOOKUP_PREFIX: Final = "tail_"
"""Prefix of the indexes that the tail creates on the scheduler's tables. They are dropped when the cutover is finished.

It is defined here, and not with the tables, so that the copy and the tail need not import SQLAlchemy.
"""
