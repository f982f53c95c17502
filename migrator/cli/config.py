"""The commands of ``config``: what is in force and where it comes from, and whether it can be used."""

import json
import os
from collections.abc import Callable, Iterator

import click

from migrator.cli.options import common_options, load, show
from migrator.config import (
    DEFAULT_PATH,
    PREFIX,
    EffectiveSetting,
    Settings,
    effective_settings,
    mongo_uri,
    postgres_dsn,
    source_uri,
)
from migrator.pipeline import hooks
from migrator.scheduler.process import check_intervals
from migrator.sources import profile_of

OVERRIDES = f"{PREFIX}PERSISTENCE__SCHEDULER"
"""The variable that would override what the cutover writes into the configuration file."""


@click.group()
def config_group() -> None:
    """Show the settings that are in force, or check them; neither connects to a server."""


@config_group.command("show", short_help="Show every setting in force, and where it comes from.")
@click.option("--changed", is_flag=True, help="Show only settings that are not defaults.")
@common_options
def show_command(config: str | None, *, changed: bool, as_json: bool) -> None:
    """Show every setting in force, and where it comes from: default, file or environment. Credentials are hidden."""
    found = [one for one in effective_settings(config) if not changed or one.origin != "default"]
    show(found, _lines(found), as_json=as_json)


@config_group.command("check", short_help="Check the settings, the references to secrets, and the source.")
@common_options
def check_command(config: str | None, *, as_json: bool) -> None:
    """Check the settings, resolve the references to secrets, and load the source or its mapping file.

    The first mistake ends the command with status 2 and one sentence. migrator doctor also connects to the servers.
    """
    settings = load(config)
    profile = profile_of(settings.source, settings.target)
    check_intervals(settings.scheduler)
    hooks.require_programs(settings)
    told = {"configuration": config or DEFAULT_PATH, "source": f"{profile.name}, version {profile.version}"}
    for name, resolve in _secrets(settings).items():
        resolve(settings)
        told[name] = "can be resolved"
    if not _secrets(settings):
        told["servers"] = "none is named"
    if OVERRIDES in os.environ:
        told["cutover"] = f"{OVERRIDES} is set, so a cutover is refused: it would override the configuration file"
    show(told, (f"ok  {name}: {words}" for name, words in told.items()), as_json=as_json)


def _secrets(settings: Settings) -> dict[str, Callable[[Settings], str]]:
    """Return the addresses that are configured, with what resolves them."""
    given = {
        "mongo.uri": (mongo_uri, (settings.mongo.uri, settings.mongo.uri_env, settings.mongo.uri_file)),
        "source.uri": (source_uri, (settings.source.uri, settings.source.uri_env, settings.source.uri_file)),
        "postgres.dsn": (
            postgres_dsn,
            (settings.postgres.dsn, settings.postgres.dsn_env, settings.postgres.dsn_file),
        ),
    }
    return {name: resolve for name, (resolve, values) in given.items() if any(one is not None for one in values)}


def _lines(found: list[EffectiveSetting]) -> Iterator[str]:
    """Yield the settings as lines of TOML, with their origin."""
    for one in found:
        text = "(not set)" if one.value is None else json.dumps(one.value, ensure_ascii=False)
        yield f"{one.key} = {text}  # {one.origin}"
