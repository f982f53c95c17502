"""Which product a source is that speaks MongoDB's protocol, and what works on it.

Products present themselves as a version of MongoDB, and lack what the tool needs: FerretDB has no change stream, and in
that of Azure Cosmos DB (request units) deletions do not appear. So a product is recognised by several signs, which are
data (``server_products.toml``) as is what works on each. A server of which nothing is known is an unknown product.
"""

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Final, Literal, TypeAlias

import msgspec

from migrator.config import parse_toml
from migrator.connections.mongo import MongoDatabase, replica_set_in, translate_errors
from migrator.errors import RefusedError

Able: TypeAlias = Literal["yes", "no", "unknown"]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something works on a product, and the reason."""

    able: Able
    why: str


UNKNOWN_FEATURE: Final = Feature(able="unknown", why="the product is not known")

FEATURES: Final = {
    "snapshot_reads": "snapshot reads",
    "change_stream": "change stream",
    "deletions": "deletions in the change stream",
    "write_block": "fence by setUserWriteBlockMode",
    "roles": "fence by roles",
    "raw_batches": "raw batches with hint, min and max",
}
"""Field of a product to the words for it, in the order of the page."""


class ServerProduct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A product: its signs, and what works on it."""

    name: str
    title: str
    genuine: bool = False
    """It answers as MongoDB's own program does."""
    module: str = ""
    hosts: tuple[str, ...] = ()
    build_info: tuple[str, ...] = ()
    hello: tuple[str, ...] = ()
    source: str = ""
    """On what these answers rest."""
    snapshot_reads: Feature = UNKNOWN_FEATURE
    change_stream: Feature = UNKNOWN_FEATURE
    deletions: Feature = UNKNOWN_FEATURE
    write_block: Feature = UNKNOWN_FEATURE
    roles: Feature = UNKNOWN_FEATURE
    raw_batches: Feature = UNKNOWN_FEATURE
    limits: str = "not known"

    def features(self) -> Mapping[str, Feature]:
        """Return the features by their words."""
        return {words: getattr(self, name) for name, words in FEATURES.items()}

    @property
    def why_no_tail(self) -> str:
        """Why changes of this product cannot be followed; empty if they can, or if that is not known."""
        if self.change_stream.able == "no":
            return f"the source is {self.title}, and the tail needs a change stream: {self.change_stream.why}"
        if self.deletions.able == "no":
            return f"the source is {self.title}, and its change stream does not show deletions: {self.deletions.why}"
        return ""

    def signs(self, build_info: Mapping[str, Any], hello: Mapping[str, Any], hosts: Iterable[str]) -> list[str]:
        """Return the signs of this product in what a server answers, in words."""
        return [
            *(f"host {host}" for host in hosts if host.lower().endswith(self.hosts)),
            *(f"{name} in buildInfo" for name in self.build_info if name in build_info),
            *(f"{name} in hello" for name in self.hello if name in hello),
            *(f"module {self.module}" for _ in (1,) if self.module and self.module in build_info.get("modules", ())),
        ]


UNKNOWN: Final = ServerProduct(name="unknown", title="unknown product")

_OF_ANOTHER_MAKER: Final = ("psmdbVersion",)
"""Members of ``buildInfo`` of programs that others made from MongoDB's."""


def products() -> tuple[ServerProduct, ...]:
    """Return the products that are told apart."""
    text = resources.files(__package__).joinpath("server_products.toml").read_text("utf-8")
    return msgspec.convert(parse_toml(text)["product"], tuple[ServerProduct, ...])


class SourceServer(msgspec.Struct, frozen=True, kw_only=True):
    """What the source's server is."""

    product: ServerProduct
    version: str
    """As the server says it: that of MongoDB which a product claims to be equal to."""
    signs: tuple[str, ...] = ()
    """By what the product was recognised."""
    why_no_tail: str = ""
    """Why changes cannot be followed, because of the product; empty if they can, or if that is not known."""

    @property
    def words(self) -> str:
        """Name the product and its version, and what does not work on it, or is not known to."""
        claims = "" if self.product.genuine else "answers as MongoDB "
        lacking = [
            f"{words}: {feature.able} ({feature.why})"
            for words, feature in self.product.features().items()
            if feature.able != "yes" and self.product is not UNKNOWN
        ]
        return "; ".join([f"{self.product.title}, {claims}{self.version}", *lacking])


def recognised(build_info: Mapping[str, Any], hello: Mapping[str, Any], hosts: Iterable[str]) -> SourceServer:
    """Return which product a server is by its answers to ``buildInfo`` and ``hello``, and its host names. Pure.

    Signs of two products that exclude each other make an unknown product; where one of them has no usable change
    stream, there is no tail either.
    """
    names = [host.rpartition(":")[0] or host for host in hosts]
    version = str(build_info.get("version", "?"))
    listed = products()
    seen = {one.name: signs for one in listed if (signs := one.signs(build_info, hello, names))}
    foreign = [one for one in listed if one.name in seen and not one.genuine]
    genuine = [one for one in listed if one.genuine] if _is_genuine(build_info, hello) else []
    # a host name alone, such as that of Atlas, or a module does not contradict MongoDB's own program
    chosen = foreign or [one for one in genuine if one.name in seen or not (one.hosts or one.module)][:1]
    contradicting = foreign and (genuine or any(one.genuine and one.name in seen for one in listed))
    product = chosen[0] if len(chosen) == 1 and not contradicting else UNKNOWN
    return SourceServer(
        product=product,
        version=version,
        signs=tuple(sign for signs in seen.values() for sign in signs),
        why_no_tail=next((one.why_no_tail for one in chosen if one.why_no_tail), ""),
    )


def _is_genuine(build_info: Mapping[str, Any], hello: Mapping[str, Any]) -> bool:
    """Whether MongoDB's own program answers, as far as can be told: nobody else sends all of these."""
    return (
        "topologyVersion" in hello
        and {"modules", "allocator", "buildEnvironment"} <= build_info.keys()
        and not any(name in build_info for name in _OF_ANOTHER_MAKER)
    )


def source_server(source: MongoDatabase) -> SourceServer:
    """Ask the source which product it is."""
    with translate_errors("the source"):
        hello = source.client.admin.command("hello")
        build_info = source.client.admin.command("buildInfo")
    return recognised(build_info, hello, _hosts(source, hello))


def _hosts(source: MongoDatabase, hello: Mapping[str, Any]) -> list[str]:
    """Return the host names of the server: as the client reached it, and as it names itself."""
    reached = {host for host, _ in source.client.nodes}
    own = {str(host).rpartition(":")[0] for host in (*hello.get("hosts", ()), hello.get("me", ""))}
    return sorted((reached | own) - {""})


def require_change_stream(source: MongoDatabase) -> str:
    """Return the replica set's name; raise ``RefusedError`` for a server whose changes cannot be followed.

    Such are a product without a change stream, one in whose change stream deletions do not appear, a standalone
    server, and a sharded cluster.
    """
    server = source_server(source)
    if server.why_no_tail:
        raise RefusedError(f"{server.why_no_tail}; {WITHOUT_A_TAIL}")
    with translate_errors("the source"):
        return replica_set_in(source.client.admin.command("hello"))


WITHOUT_A_TAIL: Final = "call backfill with --no-position while nothing writes"
