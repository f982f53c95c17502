"""Every command of the command line, by its name."""

import click

from migrator.cli import cli


def commands() -> dict[str, click.Command]:
    """Return name → command; a group is one of them only if it can be called alone."""
    return dict(_commands(cli, click.Context(cli), ""))


def _commands(command: click.Command, context: click.Context, name: str) -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(name, command)]
    found: list[tuple[str, click.Command]] = []
    if name and command.invoke_without_command:
        found.append((name, command))
    for one in command.list_commands(context):
        inner = command.get_command(context, one)
        assert inner is not None
        found += _commands(inner, context, f"{name} {one}".strip())
    return found
