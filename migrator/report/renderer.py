"""From a result to its renderings: the same result always gives the same bytes.

The HTML is one file without network: a test verifies that it has no address that a browser would fetch. Its script only
filters, and its policy allows no other script.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from migrator.errors import UsageError
from migrator.exit_status import meaning
from migrator.files import make_folder, write_private
from migrator.report import cutover, wording
from migrator.report.junit import junit
from migrator.report.sarif import sarif
from migrator.report.view import arrange
from migrator.result import Result, encode
from migrator.sources import recognition
from migrator.telemetry import bytes_text

_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
HTML: Final = "report.html"
MARKDOWN: Final = "report.md"
JUNIT: Final = "junit.xml"
SARIF: Final = "sarif.json"
RESULT: Final = "result.json"

_MARKDOWN_SPECIAL: Final = frozenset("\\`*_[]<>|#~")


def html(result: Result) -> bytes:
    """Return the report as one HTML file."""
    return _render(_html(), "report.html.j2" if result.cutover is None else "cutover.html.j2", result)


def markdown(result: Result) -> bytes:
    """Return the report as Markdown (GitHub's tables)."""
    return _render(_markdown(), "report.md.j2" if result.cutover is None else "cutover.md.j2", result)


def index(runs: Sequence[Any]) -> bytes:
    """Return the list of runs (``run_folder.ListedRun``) as one HTML file."""
    return _html().get_template("index.html.j2").render(runs=runs).encode()


def assessment(found: Any) -> bytes:  # noqa: ANN401 - an ``assessment.Assessment``, which is of a higher layer
    """Return an assessment as one HTML file."""
    template = _html().get_template("assessment.html.j2")
    return template.render(
        found=found, sureness=recognition.WORDS, size=bytes_text, history=found.history_setting
    ).encode()


def values(run: str, shown: Sequence[Any]) -> bytes:
    """Return the values of the first differences (``parity.shown_values``) as one HTML file, which is not shared."""
    return _html().get_template("values.html.j2").render(run=run, values=shown).encode()


VALUES: Final = "values.html"
"""Written on request only, next to the report. It is no rendering of the result, which holds no values."""


RENDERINGS: Final = {HTML: html, MARKDOWN: markdown, JUNIT: junit, SARIF: sarif}
"""File name → how to make it."""


def write(result: Result, directory: Path) -> list[Path]:
    """Write ``result.json`` and every rendering into ``directory``, which is made where it is missing."""
    return _write({RESULT: encode(result)} | _renderings(result), directory)


def write_result(result: Result, path: Path) -> None:
    """Replace the stored result at ``path``, in one step."""
    new = path.with_name(path.name + ".new")
    _write({new.name: encode(result)}, path.parent)
    try:
        new.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or type(error).__name__}") from None


def paths(directory: Path) -> list[Path]:
    """Return the files that ``write_renderings`` writes into ``directory``."""
    return [directory / name for name in RENDERINGS]


def write_renderings(result: Result, directory: Path) -> list[Path]:
    """Write every rendering into ``directory``, which is made where it is missing."""
    return _write(_renderings(result), directory)


def _renderings(result: Result) -> dict[str, bytes]:
    return {name: render(result) for name, render in RENDERINGS.items()}


def refuse_links(files: Iterable[Path]) -> None:
    """Raise ``UsageError`` if one of the files is a symbolic link: what it leads to would be overwritten."""
    for path in files:
        if path.is_symlink():
            raise UsageError(f"{path} is a symbolic link, which is not followed: remove it, or name another folder")


def _write(files: dict[str, bytes], directory: Path) -> list[Path]:
    refuse_links(directory / name for name in files)  # all of them before one is written
    try:
        make_folder(directory, exist_ok=True)
        for name, content in files.items():
            write_private(directory / name, content)
    except OSError as error:
        raise UsageError(f"cannot write reports into {directory}: {error.strerror or type(error).__name__}") from None
    return [directory / name for name in files]


def _render(environment: jinja2.Environment, template: str, result: Result) -> bytes:
    text = environment.get_template(template).render(result=result, view=arrange(result), **_script())
    return text.encode("utf-8")


@cache
def _script() -> dict[str, Markup]:
    """Return the page's script, and the hash by which its policy lets it run, and no other."""
    text = resources.files("migrator.report").joinpath("templates", "report.js").read_text("utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"script": Markup(text), "script_hash": Markup(f"sha256-{digest}")}  # noqa: S704 - our own file


@cache
def _html() -> jinja2.Environment:
    return _environment(autoescape=True)


@cache
def _markdown() -> jinja2.Environment:
    environment = _environment(autoescape=False)
    environment.finalize = _escape_markdown
    return environment


def _environment(*, autoescape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("migrator.report"),
        autoescape=autoescape,  # noqa: S701 - off for Markdown only, which has an escape of its own
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"meaning": meaning, "moved": cutover, "wording": wording}
    environment.filters |= {
        "capital": lambda text: text[:1].upper() + text[1:],
        "code": _code,
        "duration": wording.milliseconds,
        "loss": wording.loss,
        "moment": wording.moment,
        "number": wording.number,
        "options": _options,
        "short": wording.short,
        "status": lambda status: wording.STATUS_WORDS[status],
        "visible": wording.visible,
        "visible_text": wording.visible_text,
    }
    return environment


def _options(text: str) -> Markup:
    """Return a sentence in which no line ends inside the name of an option."""
    escaped = str(escape(wording.visible_text(text)))
    return Markup(_OPTION.sub(r'<span class="option">\g<0></span>', escaped))  # noqa: S704 - escaped above


def _code(text: str) -> Markup:
    """Return a code span that nothing inside can end, nor a table cell."""
    shown = wording.visible(text).replace("|", "\\|")
    ticks = "``" if "`" in shown else "`"
    space = " " if "`" in shown else ""
    return Markup(f"{ticks}{space}{shown}{space}{ticks}") if shown else Markup("")  # noqa: S704 - Markdown, escaped above


def _escape_markdown(value: Any) -> Any:  # noqa: ANN401 - Jinja passes whatever stands in the braces
    if isinstance(value, str) and not isinstance(value, Markup):
        return "".join(f"\\{one}" if one in _MARKDOWN_SPECIAL else one for one in value)
    return value
