"""SQL over a row ``this`` of a source in PostgreSQL."""

from typing import Any


def value_at(path: str) -> str:
    """Return the SQL of a path: a column, or a member of the JSON in it."""
    column, *members = path.split(".")
    expression = f"this.{_identifier(column)}"
    if not members:
        return expression
    steps = ", ".join(map(quoted, members))
    return f"({expression} #>> ARRAY[{steps}])"


def literal(value: Any) -> str:  # noqa: ANN401 - a value of a column
    """Return a value as SQL writes it."""
    return quoted(value) if isinstance(value, str) else str(value)


def quoted(text: str) -> str:
    """Return a text as SQL writes it."""
    doubled = text.replace("\\", "\\\\").replace("'", "''").replace("{", "\\x7b")  # a brace would name a table
    return f"E'{doubled}'"


def _identifier(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
