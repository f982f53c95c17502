"""The rules of the house that a file listing can hold: names, and what must not be in any file."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.errors import DISTRIBUTION, install_extra

ROOT = Path(__file__).resolve().parents[2]


def tracked() -> list[Path]:
    """Return the files of the project: what git knows and what it would take."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def python_files(*folders: str) -> list[Path]:
    wanted = [ROOT / folder for folder in folders]
    return [
        path for path in tracked() if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in wanted)
    ]


def texts() -> list[tuple[Path, str]]:
    found = []
    for path in tracked():
        try:
            found.append((path, path.read_text()))
        except UnicodeDecodeError:
            continue
    return found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_folder_of_revisions_does_not_shadow_the_library() -> None:
    assert not (ROOT / "alembic" / "__init__.py").exists()


def test_no_module_has_a_name_that_says_nothing() -> None:
    vague = {"utils", "util", "common", "helpers", "misc"}
    assert [named(path) for path in python_files("migrator", "tests") if path.stem in vague] == []


def test_test_folders_are_not_packages() -> None:
    assert [named(path) for path in python_files("tests") if path.name == "__init__.py"] == []


@pytest.mark.parametrize(
    "forbidden",
    [
        pytest.param(r"/(?:work|root)/[\w.]", id="a path of one machine"),
        pytest.param(r"(?:pypi\.org|files\.pythonhosted|/simple\b)", id="a package index"),
    ],
)
def test_no_file_names(forbidden: str) -> None:
    here = Path(__file__)
    assert [named(path) for path, text in texts() if path != here and re.search(forbidden, text)] == []


def test_no_module_uses_a_word_that_has_a_better_name() -> None:
    # The names of the glossary hold for identifiers too.
    wanted = re.compile(r"(?<![a-zA-Z])(?:aside|born|destination|drill|outlook|residue)(?![a-zA-Z])", re.IGNORECASE)
    modules = [(named(path), path.read_text()) for path in python_files("migrator")]
    assert len(modules) > 100
    assert [(name, word) for name, text in modules for word in wanted.findall(text)] == []


def test_every_message_installs_this_distribution_and_an_extra_that_it_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    wanted = re.compile(r"pip install ['\"]?([a-z-]*migrator)(?:\[(\w+)\])?")
    told = [(named(path), *found) for path, text in texts() for found in wanted.findall(text)]
    assert {install_extra(extra) for _, name, extra in told if name == DISTRIBUTION} >= {install_extra("sign")}
    assert [entry for entry in told if entry[1] != DISTRIBUTION] == []
    extras = {*project["optional-dependencies"], ""}
    assert [entry for entry in told if entry[2] not in extras] == []
    called = re.compile(r"install_extra\(['\"](\w+)['\"]\)")
    used = {extra for path in python_files("migrator") for extra in called.findall(path.read_text())}
    assert used == set(project["optional-dependencies"])


def test_the_lock_names_neither_an_index_nor_a_folder() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert re.findall(r"https?:|file:/|--(?:index-url|extra-index-url|find-links|trusted-host)|@ ", lock) == []


@pytest.mark.proves("0-T2.1.2")
def test_every_requirement_is_locked_with_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text().replace("\\\n", " ")
    entries = [line for line in lock.splitlines() if line and not line.startswith(("#", " "))]
    pinned = {line.split("==")[0].lower() for line in entries if "--hash=sha256:" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    speedups = tomllib.loads((ROOT / "speedups" / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    wanted += speedups["build-system"]["requires"]
    for part in (project["project"]["optional-dependencies"], project["dependency-groups"]):
        for group in part.values():
            wanted += [entry for entry in group if isinstance(entry, str)]
    names = {re.split(r"[\[<>=!~ ;]", entry)[0].lower() for entry in wanted}
    assert names - pinned == {speedups["project"]["name"]}, "it is built from this checkout"
    assert len(entries) == len(pinned)


def lines_with(pattern: str, *folders: str) -> list[str]:
    bare = re.compile(pattern)
    return [
        f"{named(path)}:{number}"
        for path in python_files(*folders)
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]


def test_every_exemption_from_a_rule_has_its_reason() -> None:
    assert lines_with(r"# noqa(?!: [A-Z0-9, ]+ - \S)", "") == []
    assert lines_with(r"# type: ignore(?!\[[\w, -]+\]\s+# \S)", "migrator", "alembic") == []


MAY_SKIP = {
    "tests/browser/test_report.py",
    "tests/integration/test_postgres_pooler.py",
    "tests/native_codec.py",
    "tests/real_libraries.py",
    "tests/small_disk.py",
}
"""A full disk takes a disk of its own size, which root alone can mount, the report's page a browser, a pooler the
pooler, Agenda Node and a registry, Quartz Java, the native codec a C compiler; the last line says what was not run."""


def test_tests_neither_sleep_nor_skip() -> None:
    found = []
    for path in python_files("tests"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if name == "pytest.skip" and named(path) in MAY_SKIP:
                continue
            if name in {"time.sleep", "pytest.skip", "pytest.xfail", "pytest.mark.skip", "pytest.mark.xfail"}:
                found.append(f"{named(path)}:{node.lineno} {name}")  # type: ignore[attr-defined]  # an expression has it
    assert found == []


VAGUE = {"found", "it", "one", "said", "words"}
"""Names of variables that say nothing: they stay where a comprehension or three lines are their whole life."""
NO_NOUNS = {"born", "late", "learned", "learner", "mute", "settle", "silent", "standing", "stands", "strange", "there"}
"""Words that no variable, parameter, function or class is named by: ``settle`` says of nothing what is done."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def names_of(arguments: ast.arguments) -> set[str]:
    others = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *others)}


def lines_of(node: ast.AST, name: str, *, bound: bool = False) -> Iterator[int]:
    """Yield the lines in which a variable stands; ``bound``: in which it is set. Not what has the same name inside."""
    if isinstance(node, (*FUNCTIONS, ast.Lambda)) and (bound or name in names_of(node.args)):
        return
    if isinstance(node, ast.comprehension | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        targets = [inner.target for inner in getattr(node, "generators", [])]
        if bound or name in {inner.id for one in targets for inner in ast.walk(one) if isinstance(inner, ast.Name)}:
            return
    if isinstance(node, ast.Name) and node.id == name and (not bound or isinstance(node.ctx, ast.Store)):
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from lines_of(child, name, bound=bound)


def vague_names(source: str) -> Iterator[tuple[str, str]]:
    """Yield function and variable where a variable without a name of its own lives longer than three lines."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, FUNCTIONS):
            continue
        statements = function.body[1:] if ast.get_docstring(function) and function.body[1:] else function.body
        held = {inner.id for inner in ast.walk(function) if isinstance(inner, ast.Name)}
        for name in sorted(VAGUE & held):
            begins = [line for statement in statements for line in lines_of(statement, name, bound=True)]
            begins += [statements[0].lineno] if name in names_of(function.args) else []
            ends = [line for statement in statements for line in lines_of(statement, name)]
            if begins and ends and max(ends) - min(begins) >= 3:
                yield function.name, name


def test_a_variable_that_lives_longer_than_three_lines_has_the_name_of_the_thing() -> None:
    planted = "def f(a):\n    one = a\n    b = [one for one in a]\n    c = 1\n    return one, b, c\n"
    assert list(vague_names(planted)) == [("f", "one")]
    assert list(vague_names(planted.replace("return one, b", "return b"))) == []
    modules = [(named(path), path.read_text()) for path in python_files("migrator")]
    assert [(name, *vague) for name, source in modules for vague in vague_names(source)] == []


def test_no_variable_function_or_class_is_named_by_a_word_that_is_no_noun() -> None:
    named_by: list[tuple[str, int, str]] = []
    for path in python_files("migrator", "alembic", "benchmarks"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names = [node.id]
            elif isinstance(node, (*FUNCTIONS, ast.Lambda)):
                names = [*names_of(node.args), getattr(node, "name", "")]
            elif isinstance(node, ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                names = [node.attr]
            named_by += [(named(path), node.lineno, name) for name in names if name.strip("_").lower() in NO_NOUNS]  # type: ignore[attr-defined]  # each has a line
    assert named_by == []


def test_a_class_name_stands_at_most_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in python_files("migrator"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(f"{named(path)}:{node.lineno}")
    assert {name: lines for name, lines in places.items() if len(lines) > 2} == {}


def test_a_docstring_names_the_thing_returned() -> None:
    # what is said to a user is the help of a command: the one of ``assess`` begins so
    vague = re.compile(
        r"\A(?:(?:Return|Yield) what\b|Tell (?:of |what\b|whether\b|which\b)|Say (?:what|whether)\b(?! the database))"
    )
    kinds = (*FUNCTIONS, ast.ClassDef)
    found = [
        f"{named(path)}:{node.lineno}"
        for path in python_files("migrator")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, kinds) and vague.match(ast.get_docstring(node) or "")
    ]
    assert found == []
