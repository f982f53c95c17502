"""The command line: one module per group of commands, loaded only when one is called. ``--help`` loads none."""

import difflib
import gc
import importlib
import sys
from dataclasses import asdict

import click

from migrator import __version__, interruption, native
from migrator.cli import stored_help
from migrator.errors import UnexpectedError
from migrator.telemetry import OutputSettings, set_output

COMMANDS = {
    "assess": ("assess", "Say what a database of MongoDB holds, from its address alone: sources, what would move."),
    "backfill": ("copy", "Copy the source into PostgreSQL; resumes by itself."),
    "config": ("config", "Show the settings in force with their origin, or check them."),
    "control": ("control", "Pause, slow down or postpone a migration while it runs."),
    "cutover": (
        "cutover",
        "Move writers from MongoDB to PostgreSQL under a fence; cutover plan shows what would be done.",
    ),
    "demo": ("demo", "Migrate a demo scheduler between two servers of its own, and write a report."),
    "doctor": ("cutover", "Connect to both servers and report what prevents a migration."),
    "inspect": (
        "migration",
        "Count the documents, field paths and types of the source, and what would be quarantined.",
    ),
    "jobs": ("jobs", "List, show and change jobs by hand: pause, resume, trigger, cancel, retry, delete."),
    "parity": ("parity", "Compare every document with its rows, and the rows with the document."),
    "plan": ("copy", "Show the chunks, estimates and risks; writes nothing."),
    "quarantine": ("migration", "List, show, retry or drop the documents in quarantine."),
    "report": ("report", "Render a stored result again, sign it, or check that a report belongs to it."),
    "rollback": ("cutover", "Move writers back to MongoDB; rollback plan shows what would be done."),
    "scheduler": ("scheduler", "Run a scheduler process, show its state or its metrics, or remove old runs."),
    "schema": ("schema", "Upgrade, downgrade, show or check the target's schema."),
    "servers": ("servers", "Start, stop or show a MongoDB and a PostgreSQL for a rehearsal."),
    "source": ("source", "List the known sources, draft a mapping for a source of your own, and try it on a sample."),
    "status": ("migration", "Show the state of the copy and of the tail."),
    "tail": ("migration", "Follow the change stream of the source after the copy, and update rows."),
    "target": ("target", "List the known targets, show one, or prepare the tables of a library."),
    "verify": ("verification", "Run every check and write the report."),
}
"""Command → the module of this package that defines it, and its short help."""

SLOW_TO_END = frozenset(
    {"cutover abort", "cutover finish", "cutover release-source", "cutover run", "rollback run", "scheduler run"}
)
"""Commands that, when interrupted, lift a fence first or end the runs that they work on."""


class LazyGroup(click.Group):
    """A group whose commands live in the modules of ``COMMANDS``, as ``<name>_command`` or ``<name>_group``."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the command names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import the module of the command that is called."""
        if cmd_name not in COMMANDS:
            return None
        name = f"migrator.cli.{COMMANDS[cmd_name][0]}"
        collects, is_loaded = gc.isenabled(), name in sys.modules
        gc.disable()  # what is loaded stays: to look for garbage in it would take a tenth of the time
        try:
            module = importlib.import_module(name)
            if not is_loaded:
                gc.freeze()  # else the first collection afterwards looks at all of it
        finally:
            if collects:
                gc.enable()
        command: click.Command = getattr(module, f"{cmd_name}_group", None) or getattr(module, f"{cmd_name}_command")
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; raise ``UnexpectedError`` where click would end with a status of its own.

        click ends a broken pipe of any connection with 1, which means a difference, and takes the end of any file for
        an interruption.
        """
        set_output(**asdict(OutputSettings()))  # of a call before, in the same process
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, EOFError) as error:
            raise UnexpectedError(type(error).__name__) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; print its help, or of a name that does not exist, say which one is nearest."""
        if (told := stored_help.help_text(ctx, args)) is not None:
            click.echo(told, color=ctx.color)
            ctx.exit()
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(sorted(COMMANDS))}"
            raise click.UsageError(f"no command {args[0]}; {hint}", ctx)
        if {" ".join(args[:1]), " ".join(args[:2])} & SLOW_TO_END:
            interruption.allow_slow_end()
        return super().resolve_command(ctx, _with_config(args, ctx.params.get("config")))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in sorted(COMMANDS.items())])


def _with_config(args: list[str], config: str | None) -> list[str]:
    """Return the words of a command with the configuration file that was named before it, unless they name one."""
    if config is None or any(word == "--config" or word.startswith("--config=") for word in args):
        return args
    place = args.index("--") if "--" in args else len(args)
    return [*args[:place], "--config", config, *args[place:]]


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click's signature
    if wanted and not ctx.resilient_parsing:
        click.echo(f"migrator, version {__version__}\ncodec: {native.description()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Show the version and the codec, and exit.",
)  # fmt: skip
@click.option("--config", type=click.Path(), help="Configuration file of the command; may follow the command too.")
def cli(config: str | None) -> None:
    """Move a scheduler's data from MongoDB to PostgreSQL, and prove that nothing was lost or changed.

    Exit status is a bit mask: 1 a difference, 2 usage or configuration, 4 something left unverified, 8 documents in
    quarantine, 16 a server could not be reached or the tool failed.
    """
