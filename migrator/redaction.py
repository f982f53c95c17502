"""Redaction: what is taken out of every text that leaves the process, because it is, or may be, a secret.

A text whose structure is unknown (an error, a line of the log) is searched for addresses, and for the words that stand
before a secret; a setting whose structure is known (an address, a DSN) is shown option by option, and an option that
this module does not know is hidden. Hiding too much is the safe side: a driver quotes a password where it expected a
port. Each function returns a text that it would not change again.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

HIDDEN: Final = "***"

_TEXT_OF_MONGODB = """
appname authmechanism authsource compressors connect connecttimeoutms directconnection heartbeatfrequencyms journal
loadbalanced localthresholdms maxconnecting maxidletimems maxpoolsize maxstalenessseconds minpoolsize proxyhost
proxyport readconcernlevel readpreference readpreferencetags replicaset retryreads retrywrites servermonitoringmode
serverselectiontimeoutms sockettimeoutms srvmaxhosts srvservicename ssl timeoutms tls tlsallowinvalidcertificates
tlsallowinvalidhostnames tlscafile tlscertificatekeyfile tlscrlfile tlsdisableocspendpointcheck tlsinsecure
uuidrepresentation w waitqueuetimeoutms wtimeoutms zlibcompressionlevel
"""
_OF_MONGODB: Final = frozenset(_TEXT_OF_MONGODB.split())
_TEXT_OF_POSTGRESQL = """
application_name channel_binding client_encoding connect_timeout dbname fallback_application_name gssencmode host
hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts
max_protocol_version min_protocol_version options passfile port require_auth requirepeer service servicefile
ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode sslcrl sslcrldir sslkey sslmode sslnegotiation
sslrootcert sslsni target_session_attrs tcp_user_timeout user
"""
_OF_POSTGRESQL: Final = frozenset(_TEXT_OF_POSTGRESQL.split())
"""Options of an address, and keywords of a DSN, that are no secret; any other is hidden where a setting is shown."""

_WORDS = (
    r"password|passwd|pwd|passphrase|secret|token|credentials?|api_?key|access_?key|private_?key|client_?key"
    r"|authmechanismproperties"
)
_SCHEME = r"[a-z][a-z0-9+.-]*"
_SERVERS = r"(?:[a-z][a-z0-9+.-]*[+.-])?(?:mongodb(?:\+srv)?|postgres(?:ql)?)"
_BEGIN = r"(?<=[\s\"'(\[,])(?:mongodb(?:\+srv)?|postgres(?:ql)?|https?|tls|tcp)://"
_ADDRESS = re.compile(rf"(?i)\b(?:({_SERVERS}):/+((?:(?!{_BEGIN}).)+)|({_SCHEME}):/+(\S+))")
"""A scheme, and the rest of the line up to the next address: a password may hold what should have been encoded.

What is no address of a database ends at a blank, for it may be any link in a sentence.
"""
_LAST_SHOWN = re.compile(rf"(?i)([?&;][\w.-]*(?:{_WORDS})[\w.-]*=)(?!\*\*\*(?:[&\"'\s]|$)).*")
"""An option of an address that is a secret; whatever follows may belong to it, if it is not percent-encoded."""
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NEXT = rf"\s+(?:{'|'.join(sorted(_OF_POSTGRESQL))})\s*="
_ASSIGNED = re.compile(
    rf"(?i)(?<![?&;\w.-])([\w.-]*(?:{_WORDS})[\w.-]*)(\s*=\s*)"
    rf"(?:\*\*\*(?=[\s,;:)}}\]]|$)|(?:{_QUOTED})(?=\s*$|{_NEXT})|(?:(?!{_NEXT}).)+)"
)
"""A keyword of a DSN with its value, which ends before the next known keyword: a blank in it may lack its quotes."""
_TOLD = re.compile(
    rf"(?i)(?<![\w/.-])((?:\w+[_-])?(?:{_WORDS})[\"']?)(\s*:\s*|(?<=--password)\s+)({_QUOTED}|['\"].*|\S+)"
)
_SECRET_NAME = re.compile(rf"(?i)\w*(?:{_WORDS})\w*")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}")
_HINT = re.compile(rf"(?i):/|bearer|{_WORDS}")
_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')

_KEYWORD = re.compile(r"\s*(\w+)(\s*=\s*)('(?:[^'\\]|\\.)*'|(?:\\.|[^\s'\\])*)(?=\s|$)", re.DOTALL)


def redact(text: str) -> str:
    """Take credentials out of a text: the login and the secret options of addresses, and what is called a secret.

    The lines of a text are looked at one by one.
    """
    if _HINT.search(text) is None:
        return text
    return "\n".join(map(_redact_line, text.split("\n"))) if "\n" in text else _redact_line(text)


def _redact_line(line: str) -> str:
    line = _ADDRESS.sub(_without_login, line)
    line = _ASSIGNED.sub(rf"\1\2{HIDDEN}", line)
    line = _TOLD.sub(rf"\1\2{HIDDEN}", line)
    return _BEARER.sub(rf"\1{HIDDEN}", line)


def _without_login(match: re.Match[str]) -> str:
    scheme, rest = match[1] or match[3], match[2] or match[4]
    login, at, place = rest.rpartition("@")
    if not at:
        start = match[0][: -len(rest)]
        return start + _LAST_SHOWN.sub(rf"\1{HIDDEN}", rest)
    if "?" in login:  # the last @ may be in the value of an option, and what follows be the rest of that value
        return f"{scheme}://{HIDDEN}"
    return f"{scheme}://{HIDDEN}@" + _LAST_SHOWN.sub(rf"\1{HIDDEN}", place)


def redact_all(value: Any) -> Any:  # noqa: ANN401 - plain values of any kind
    """Take credentials out of every text of a plain value: mappings, lists and what is in them."""
    if isinstance(value, Mapping):
        return {redact_all(name): redact_all(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact_all(inner) for inner in value]
    return redact(value) if isinstance(value, str) else value


def redact_json(document: str) -> str:
    """Take credentials out of the strings of a JSON text, which stays the same document but for them."""
    return _LITERAL.sub(_redact_literal, document) if _HINT.search(document) is not None else document


def _redact_literal(match: re.Match[str]) -> str:
    if _HINT.search(match[0]) is None:
        return match[0]
    try:
        text = json.loads(match[0])
    except ValueError:  # no JSON after all
        return redact(match[0])
    safe = redact(text)
    return match[0] if safe == text else json.dumps(safe, ensure_ascii=False)


def redact_line(line: str) -> str:
    """Take credentials out of a line of which nothing is known: text, or text that ends with a JSON document."""
    if _HINT.search(line) is None:
        return line
    start = line.find("{")
    if start >= 0 and line.endswith("}"):
        with suppress(ValueError):
            json.loads(line[start:])
            return redact(line[:start]) + redact_json(line[start:])
    return redact(line)


def redact_address(text: str) -> str:
    """Return an address or a DSN without its login, and with the values of those options alone that are no secret."""
    address = re.fullmatch(rf"(?is)\s*({_SCHEME}):/+(.*)", text)
    if address is None:
        return _redact_dsn(text)
    scheme, rest = address[1], address[2]
    login, at, place = rest.rpartition("@")
    if "?" in login:
        return f"{scheme}://{HIDDEN}"
    server, mark, query = place.partition("?")
    options = [_shown_option(option) for option in re.split("[&;]", query)] if query else []
    return f"{scheme}://{HIDDEN}@{server}" * bool(at) + f"{scheme}://{server}" * (not at) + mark + "&".join(options)


def _shown_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if name.lower() in _OF_MONGODB | _OF_POSTGRESQL and equals:
        return f"{name}={redact(value)}"
    return f"{name}={HIDDEN}" if _SECRET_NAME.fullmatch(name) and equals else HIDDEN


def _redact_dsn(text: str) -> str:
    """Return a DSN of keywords; one that is not well formed is hidden, for nobody can tell what of it is a value."""
    shown, end = [], 0
    while end < len(text.rstrip()):
        keyword = _KEYWORD.match(text, end)
        if keyword is None:
            return HIDDEN
        name, _, value = keyword.groups()
        if name not in _OF_POSTGRESQL and not _SECRET_NAME.fullmatch(name):
            return HIDDEN
        shown.append(f"{name}={redact(value) if name in _OF_POSTGRESQL else HIDDEN}")
        end = keyword.end()
    return " ".join(shown)


def redact_whole(text: str) -> str:
    """Return a text that should hold no secret (a path, a name), hidden if it does: what is left of it is no name."""
    return text if redact(text) == text else HIDDEN
