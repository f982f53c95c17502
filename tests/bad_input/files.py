"""Bad input in files that a command reads, and at places where it writes."""

from collections.abc import Iterator

from migrator.config import MOST_SECRET
from migrator.files import MOST_BYTES
from migrator.result import encode
from tests.bad_input.case import QUARANTINE, USAGE, Case, case
from tests.fabricated_results import clean

REGULAR = "expected a regular file, not a pipe or a device"


def _read_files() -> Iterator[Case]:
    """Yield a case for each file that a command reads, and each kind of file that must not be read."""
    readers = (
        ("the configuration", "status --config {file}", "cannot read {file}", None),
        ("the address of the source", "inspect", "mongo.uri_file cannot be read: {file}", "mongo.uri_file"),
        (
            "the address of the target",
            "schema current",
            "postgres.dsn_file cannot be read: {file}",
            "postgres.dsn_file",
        ),
        ("a mapping", "source check {file}", "cannot read the mapping {file}", None),
        ("a result", "report check {file}", "cannot read {file}", None),
        ("a result to render", "report render {file}", "cannot read {file}", None),
        ("a rendering", "report check r.json {file}", "cannot read {file}", None),
        ("a key", "report sign r.json --key {file}", "cannot read {file}", None),
        ("a public key", "report check r.json --public-key {file}", "cannot read {file}", None),
        ("the key of a verification", "verify --sign-key {file}", "cannot read {file}", None),
    )
    for what, command, words, key in readers:
        for kind, place in (("a pipe", "pipe.toml"), ("a device", "/dev/zero"), ("a link to a device", "link.toml")):
            if what == "a mapping" and not place.endswith(".toml"):
                continue
            name = "pipe.html" if what == "a rendering" and kind == "a pipe" else place
            if what == "a rendering" and kind != "a pipe":
                continue
            yield case(
                f"{what} is {kind}",
                command.replace("{file}", name),
                USAGE,
                words.replace("{file}", name),
                REGULAR,
                config=None if key is None else {key.rpartition("_")[0]: "", key: f'"{name}"'},
                pipes=("pipe.toml", "pipe.html"),
                links={"link.toml": "/dev/zero"},
                files={"r.json": encode(clean())},
            )


FILES = [
    *_read_files(),
    case(
        "a configuration that is huge",
        "status --config huge.toml",
        USAGE,
        f"cannot read huge.toml: is too large: expected at most {MOST_BYTES:,} bytes",
        files={"huge.toml": b"#" * (MOST_BYTES + 1)},
    ),
    case(
        "an address that is huge",
        "inspect",
        USAGE,
        f"mongo.uri_file cannot be read: huge: is too large: expected at most {MOST_SECRET:,} bytes",
        config={"mongo.uri": "", "mongo.uri_file": '"huge"'},
        files={"huge": b"x" * (MOST_SECRET + 1)},
    ),
    *[
        case(
            f"a link where {name} is to be rendered",
            "report render r.json",
            USAGE,
            f"{name} is a symbolic link, which is not followed",
            files={"r.json": encode(clean()), "kept": b"mine"},
            links={name: "kept"},
        )
        for name in ("report.html", "sarif.json")
    ],
    case(
        "a pipe where a report is to be rendered",
        "report render r.json",
        USAGE,
        "cannot write reports into .: is no regular file",
        files={"r.json": encode(clean())},
        pipes=("report.html",),
    ),
    case(
        "--raw onto a file",
        "quarantine show runs odd --raw kept",
        USAGE,
        "--raw: kept exists and is not overwritten",
        files={"kept": b"mine"},
    ),
    case("--raw into a missing folder", "quarantine show runs odd --raw no/such", USAGE, "--raw: cannot write no/such"),
    case(
        "--raw onto a folder",
        "quarantine show runs odd --raw d",
        USAGE,
        "--raw: d exists and is not overwritten",
        files={"d/x": b""},
    ),
    case("--raw with a long name", f"quarantine show runs odd --raw {'a' * 300}", USAGE, "--raw: cannot write"),
    case(
        "--raw, as it should be",
        "quarantine show runs odd --raw new",
        QUARANTINE,
        "reason: unknown-value",
        writes=("new",),
    ),
    case("reports into a file", "verify --only schema --report-dir f", USAGE, "f", files={"f": b""}),
    case("no such result", "report render absent.json", USAGE, "absent.json"),
    case("a result that is no JSON", "report render r.json", USAGE, "r.json", files={"r.json": b"{"}),
    case("a result that is empty", "report check r.json", USAGE, "r.json", files={"r.json": b""}),
    case("a result that is not UTF-8", "report check r.json", USAGE, "r.json", files={"r.json": b"\xff\xfe"}),
    case("a result of another kind", "report check r.json", USAGE, "r.json", files={"r.json": b'{"a": 1}'}),
    case("a list for a result", "report render r.json", USAGE, "r.json", files={"r.json": b"[]"}),
    case("deep JSON", "report render r.json", USAGE, "r.json", files={"r.json": b"[" * 100_000}),
    case("a folder for a result", "report render d", USAGE, "d", files={"d/x": b""}),
    case("a result with NUL", "report check r.json", USAGE, "r.json", files={"r.json": b"\x00" * 100}),
    case("no such key", "report sign r.json --key absent", USAGE, "absent", files={"r.json": b"{}"}),
    case(
        "a metrics file in a missing folder", "tail --until-caught-up --metrics-file no/such/m.prom", USAGE, "no/such"
    ),
    case(
        "an address of no Dask scheduler",
        "backfill --executor dask",
        USAGE,
        "copy.dask_scheduler: nonsense://127.0.0.1:9 is no address",
        config={"copy.dask_scheduler": '"nonsense://127.0.0.1:9"'},
    ),
    case("a difference is not hidden by a filter", "parity --only schedules", 4, "not compared"),
    case(
        "handlers that cannot be loaded",
        "scheduler run --once",
        USAGE,
        "the module broken of the handlers",
        "SyntaxError",
        files={"broken.py": b"def ("},
        config={"scheduler.handlers": '"broken:all"'},
    ),
]
