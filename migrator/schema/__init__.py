"""The schema of the target: declared tables, revisions and how they are applied, roles and rights, catalogue check.

The tables of the schema ``scheduler`` are the application's, those of ``migration`` the tool's. Alembic revisions
(``alembic/versions``) make both; what is declared here is compared with the live catalogue. Nothing that an application
imports (``scheduler``, ``store``, ``records``) imports this package.
"""

from typing import Final

LOOKUP_PREFIX: Final = "tail_"
"""Of the indexes that the tail makes on the scheduler's tables, and that are dropped when the move is finished.

It stands here, and not beside the tables, so that the copy and the tail do not import SQLAlchemy for it.
"""
