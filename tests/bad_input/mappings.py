"""Bad input in mapping files, and in the names of sources. A mistake is reported before any server is asked."""

from tests.bad_input.case import USAGE, case

NO_SERVER = {"mongo.uri": '"mongodb://127.0.0.1:1/?replicaSet=rs0"', "postgres.dsn": '"postgresql://127.0.0.1:1/none"'}
"""Settings with servers that do not answer: they must not be asked."""

HEAD = '[source]\nname = "own"\n[collections.jobs]\ntables = ["runs"]\n'
GOOD = HEAD + '[collections.jobs.fields]\nat = { to = "runs.created_at" }\nstate = { to = "runs.state" }\n'

MISTAKES = """\
[source]
name = "own"

[collections.jobs]
tables = ["schedule", "triggers"]

[collections.jobs.fields]
a = { to = "schedules.name" }

[collections.runs]
tables = ["runs"]

[collections.runs.fields]
b = { to = "runs.created_at", as = "tyme" }
c = { to = "runs.state", words = { ok = "complete" } }
d = { to = "runs.worker" }
e = { to = "runs.error" }
f = { to = "runs.error" }
"""


def many(line: str, count: int) -> str:
    """Return lines, with the number of each in the place of ``{}``."""
    return "".join(line.replace("{}", str(number)) + "\n" for number in range(count))


BOMBS = (
    ("has a line of blanks, and one mistake", 'x = """\n' + " " * 2_500 + '\n"""\n' + GOOD, "unknown key x"),
    ("has a key that no assignment follows", 'x = """\n' + "a b." * 700 + '\n"""\n' + GOOD, "unknown key x"),
    ("has a long line", GOOD + f"# {'x' * 10_000}\n", "line 8 is longer than 10,000 characters"),
    ("has a long path", GOOD + "a" + ".a" * 4_000 + ' = { to = "runs.error" }\n', "line 8 has a path of more than 100"),
    (
        "has a long path in quotes",
        GOOD + '"a' + ".a" * 900 + '" = { to = "runs.error" }\n',
        "line 8 has a path of more",
    ),
    (
        "has a path just as long in a list",
        GOOD + 'a = { to = "runs.error", also = ["b' + ".ü" * 100 + '"] }\n',
        "own.toml:8: field a of jobs: expected a path of at most 100 members",
    ),
    (
        "has lists deep in one another",
        GOOD + f"a = {'[' * 450}1{']' * 450}\n",
        "own.toml:8: expected at most 100 levels of keys",
    ),
    (
        "has more fields than documents have",
        GOOD + many('m{} = { to = "runs.result.m{}", as = "json" }', 5_000),
        "own.toml:1: expected at most 10,000 keys and members of lists in a mapping",
    ),
    (
        "has more collections than a database has",
        '[source]\nname = "own"\n' + many("[collections.c{}]", 10_001),
        "own.toml:1: expected at most 10,000 keys",
    ),
    (
        "has thousands of mistakes",
        GOOD + many('m{} = { to = "runs.eror{}" }', 2_400),
        "own.toml:8: field m0 of jobs: column runs.eror0 does not exist; did you mean error?",
        "own.toml: no more than 100 mistakes are reported at once",
    ),
    (
        "has thousands of fields for one column",
        GOOD + many('m{} = { to = "runs.error" }', 2_400),
        "own.toml:9: field m1 of jobs: runs.error is filled by the field m0 already",
    ),
    (
        "has thousands of fields, and one mistake",
        HEAD + "[collections.jobs.fields]\n" + many('m{} = { to = "runs.result.m{}", as = "json" }', 2_400),
        "own.toml:3: collection jobs: runs.state may not be null, and nothing fills it",
    ),
    (
        "has thousands of words, and one mistake",
        GOOD
        + '[collections.jobs.fields.w]\nto = "runs.error"\n[collections.jobs.fields.w.words]\n'
        + many('w{} = "s{}"', 9_000)
        + "x = 1\n",
        "own.toml:8: field w of jobs: words: expected values of runs.error (text)",
    ),
)
"""What a mapping is, its text, and what is reported of it: small files whose check took minutes, or did not end."""


def file(text: str | bytes) -> dict[str, bytes]:
    return {"own.toml": text if isinstance(text, bytes) else text.encode()}


MAPPINGS = [
    case(
        "a mapping with mistakes of each kind, all of which are reported",
        "source check own.toml",
        USAGE,
        "migrator: the mapping own.toml cannot be used",
        "own.toml:5: collection jobs: tables: unknown table schedule; did you mean schedules?",
        "own.toml:14: field b of runs: unknown converter tyme; did you mean time?",
        "own.toml:15: field c of runs: words: runs.state has no word complete; did you mean completed?",
        "own.toml:16: field d of runs: column runs.worker does not exist; did you mean worker_id?",
        "own.toml:18: field f of runs: runs.error is filled by the field e already",
        files=file(MISTAKES),
        config=NO_SERVER,
    ),
    case(
        "a mapping that leaves out what a run must have",
        "backfill",
        USAGE,
        "own.toml:3: collection jobs: runs.created_at may not be null, and nothing fills it",
        "own.toml:3: collection jobs: runs.state may not be null, and nothing fills it",
        files=file(HEAD + '[collections.jobs.fields]\nx = { to = "runs.error" }\n'),
        config={**NO_SERVER, "source.mapping": '"own.toml"'},
    ),
    *[
        case(
            f"{command}: a mapping with a mistake",
            command,
            USAGE,
            "own.toml:8: field more of jobs: unknown converter txt; did you mean text?",
            files=file(GOOD + 'more = { to = "runs.error", as = "txt" }\n'),
            config={**NO_SERVER, "source.mapping": '"own.toml"'},
        )
        for command in ("inspect", "plan", "parity", "tail --until-caught-up", "cutover run --yes", "source check")
    ],
    *[
        case(f"a mapping that {what}", "source check own.toml", USAGE, words, files=file(text), config=NO_SERVER)
        for what, text, words in (
            ("is no TOML", "[source\nname", "the mapping own.toml is not TOML"),
            ("is empty", "", "expected a section [source]"),
            (
                "has a NUL in a name",
                GOOD.replace("[collections.jobs", '[collections."j\\u0000"'),
                "without the character NUL",
            ),
            (
                "has a flag for a list",
                GOOD + 'n = { to = "runs.error", also = true }\n',
                "also: expected a list of paths",
            ),
            ("has a number without end", GOOD + f"n = {'9' * 5_000}\n", "more digits than can be read"),
            ("is not UTF-8", GOOD.encode() + b"# \xff\xfe\n", "own.toml: expected text in UTF-8; byte 149 is not"),
            ("holds NUL", GOOD + "# \0\n", "the mapping own.toml is not TOML"),
            ("is huge", GOOD + "#" * 1_000_001, "own.toml: is too large: expected at most 1,000,000 bytes"),
            ("lies deep in itself", "a = " + "[" * 9_000, "the mapping own.toml is not TOML: its values lie too deep"),
            ("has the name of a shipped source", GOOD.replace("own", "quartz"), "quartz is the name of a source that"),
            ("has an unknown section", GOOD + "[colections.x]\n", "unknown key colections; did you mean collections?"),
        )
    ],
    *[
        case(f"a mapping that {what}", "source check own.toml", USAGE, *words, files=file(text), config=NO_SERVER)
        for what, text, *words in BOMBS
    ],
    case("a mapping that does not exist", "source check own.toml", USAGE, "cannot read the mapping own.toml"),
    case(
        "a folder for a mapping",
        "source check own.toml",
        USAGE,
        "cannot read the mapping own.toml: is a directory",
        files={"own.toml/x": b""},
    ),
    case(
        "a mapping without an end",
        "backfill",
        USAGE,
        "expected a regular file",
        config={"source.mapping": '"/dev/zero"'},
    ),
    case("an unknown source", "source show hangfir", USAGE, "unknown source profile 'hangfir'; did you mean hangfire?"),
    case("an unknown module", "source show no.such:PROFILE", USAGE, "source profile no.such:PROFILE: cannot be"),
    case("no collection to describe", "source draft", USAGE, "name a collection: --collection NAME"),
    case(
        "an unknown table",
        "source draft --table runs=schedule",
        USAGE,
        "runs=schedule: unknown table; did you mean schedules",
    ),
    case("no table", "source draft --table runs", USAGE, "--table runs: expected NAME=TABLE"),
    case("a draft of no collection", "source draft --collection none", USAGE, "collection none of database"),
]
