"""The tables of docs/server-products.md, made from ``migrator/connections/server_products.toml``."""

from collections.abc import Iterator
from typing import Final

from migrator.connections.server_product import FEATURES, products

BEGIN: Final = "<!-- made from the data: UPDATE_GOLDEN=1 pytest tests/integration/test_server_products.py -->"
END: Final = "<!-- up to here -->"
SHORT: Final = {"yes": "yes", "no": "**no**", "unknown": "not known"}


def made_part() -> str:
    """Return the part of the page that is made, from its first mark to before its last one."""
    return "\n".join([BEGIN, "", *_overview(), "", *_details(), "", ""])


def _overview() -> Iterator[str]:
    yield f"| product | tail | {' | '.join(FEATURES.values())} |"
    yield f"|---|---|{'---|' * len(FEATURES)}"
    for product in products():
        able = [SHORT[one.able] for one in product.features().values()]
        tail = "**refused**" if product.why_no_tail else "not known" if "not known" in able[1:3] else "yes"
        yield f"| {product.title} | {tail} | {' | '.join(able)} |"


def _details() -> Iterator[str]:
    for product in products():
        signs = [
            *(f"the name of a host ends with `{end}`" for end in product.hosts),
            *(f"`{name}` in the answer to `buildInfo`" for name in product.build_info),
            *(f"`{name}` in the answer to `hello`" for name in product.hello),
            *([f"module `{product.module}`"] if product.module else []),
            *(["the answers of MongoDB's own program"] if product.genuine else []),
        ]
        yield f"## {product.title}"
        yield ""
        yield f"Recognised by: {'; '.join(signs)}. Sizes: {product.limits}. Rests on: {product.source}."
        yield ""
        for words, feature in product.features().items():
            yield f"- {words}: {feature.able}: {feature.why}"
        yield ""
