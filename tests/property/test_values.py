"""Laws of ``migrator.values`` over arbitrary BSON; the same through real servers is in tests/integration."""

from datetime import UTC, datetime, timedelta

import msgspec
from bson.errors import InvalidBSON
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.records import EMPTY
from migrator.values import document, identity, jsonb, remainder, times
from migrator.values.canonical import canonical, same
from migrator.values.jsonb import plain_tree
from tests.cron_lines import DEEP
from tests.strategies_bson import (
    Document,
    Value,
    datetimes_within,
    documents,
    doubles,
    identifiers,
    keys,
    pairs,
    texts,
    values,
)

# Nothing here may depend on how busy the machine is.
PROFILE = settings(deadline=None, max_examples=100 if DEEP else 50, suppress_health_check=[HealthCheck.too_slow])


def reordered(value: Value) -> Value:
    """Return the value with the keys of every document in reverse."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def instants() -> st.SearchStrategy[datetime]:
    return st.datetimes(timezones=st.just(UTC))


@PROFILE
@given(documents())
def test_a_document_survives_bson(value: Document) -> None:
    raw = document.encode(value)
    decoded = document.decode(raw)
    assert same(decoded, value)
    assert document.encode(decoded) == raw


@PROFILE
@given(st.lists(documents(), max_size=12), st.data())
def test_many_together_fare_as_each_alone(found: list[Document], data: st.DataObject) -> None:
    raws = [document.encode({"": value})[6:-1] for value in found]  # the _id where it stands
    assert document.encode_to([one for one in document.decode_all(raws) if isinstance(one, dict)], raws) == [
        True
    ] * len(raws)
    others = data.draw(st.permutations(found))
    expected = [document.encode({"": other})[6:-1] == raw for other, raw in zip(others, raws, strict=True)]
    assert document.encode_to(others, raws) == expected


@PROFILE
@given(pairs())
def test_what_has_the_bytes_of_a_document_in_its_order_leaves_no_remainder(pair: tuple[Document, Document]) -> None:
    read, other = pair
    raw = document.encode({"": read})[6:-1]
    decoded = document.decode(raw)
    for rebuilt in (other, reordered(decoded)):
        if document.encode_to([document.in_order(rebuilt, decoded)], [raw])[0]:
            assert remainder.difference(decoded, rebuilt) == EMPTY
    turned = {**reordered(decoded), **({"_id": decoded["_id"]} if "_id" in decoded else {})}
    assert document.encode_to([document.in_order(turned, decoded)], [raw]) == [True]


@PROFILE
@given(st.lists(documents().map(document.encode), max_size=5))
def test_a_batch_is_split_into_its_documents(raws: list[bytes]) -> None:
    assert document.split(b"".join(raws)) == raws


@PROFILE
@given(st.binary(max_size=40), documents(), st.data())
def test_broken_bytes_are_undecodable_or_a_document_and_nothing_else(
    noise: bytes, value: Document, data: st.DataObject
) -> None:
    raw = bytearray(document.encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    for candidate in (noise, bytes(raw)):
        try:
            assert isinstance(document.decode(candidate), dict)
        except document.Undecodable as error:
            assert error.reason in {"bad-utf8", "unknown-type", "malformed"}  # noqa: PT017 - both outcomes are fine
            assert isinstance(error.__cause__, InvalidBSON)  # noqa: PT017 - as above


@PROFILE
@given(values(), values())
def test_canonical_bytes_are_equal_exactly_for_equal_bson(left: Value, right: Value) -> None:
    assert same(left, left)
    plain_bson = document.encode({"v": left}) == document.encode({"v": right})
    assert same(left, right) or not plain_bson
    if not isinstance(left, dict | list) and getattr(left, "scope", None) is None:
        assert same(left, right) == plain_bson


@PROFILE
@given(values())
def test_key_order_is_not_compared(value: Value) -> None:
    assert canonical([reordered(value)]) == canonical([value])


@PROFILE
@given(values())
def test_the_typed_form_is_injective_and_survives_jsonb(value: Value) -> None:
    form = remainder.write_typed(value)
    text = msgspec.json.encode(form)
    assert b"\\u0000" not in text.replace(b"\\\\", b"")
    assert same(remainder.read_typed(jsonb.decode(text)), value)
    assert same(remainder.read_typed(jsonb.decode(jsonb.canonicalise(text))), value)


@PROFILE
@given(documents(), documents())
def test_the_remainder_law_for_any_two_documents(one: Document, other: Document) -> None:
    assert same(remainder.apply(other, remainder.difference(one, other)), one)


@PROFILE
@given(pairs())
def test_the_remainder_law_for_documents_that_are_close(pair: tuple[Document, Document]) -> None:
    one, other = pair
    before = canonical(other)
    rest = remainder.difference(one, other)
    assert same(remainder.apply(other, jsonb.canonicalise(rest)), one)
    assert canonical(other) == before
    assert (rest == b"{}") == same(one, other)
    assert [entry.path for entry in remainder.entries(rest)] == sorted(
        key.removeprefix("+") for key in msgspec.json.decode(rest)
    )


@PROFILE
@given(values(), values())
def test_the_remainder_law_for_any_two_values(one: Value, other: Value) -> None:
    assert same(remainder.apply(other, remainder.difference(one, other)), one)


@PROFILE
@given(documents())
def test_what_jsonb_cannot_carry_of_a_subdocument_is_remainder(value: Document) -> None:
    rebuilt = {"payload": jsonb.decode(jsonb.encode(value))}
    whole = {"payload": value}
    assert same(remainder.apply(rebuilt, remainder.difference(whole, rebuilt)), whole)


@PROFILE
@given(values())
def test_jsonb_text_is_deterministic_and_its_canonical_text_stable(value: Value) -> None:
    text = jsonb.encode(value)
    assert text == jsonb.encode(reordered(value)) or getattr(value, "scope", None) is not None
    assert b"\\u0000" not in text.replace(b"\\\\", b"")
    once = jsonb.canonicalise(text)
    assert jsonb.canonicalise(once) == once
    assert same(jsonb.decode(once), jsonb.decode(text))


@PROFILE
@given(values())
def test_the_fast_way_writes_what_the_slow_way_writes(value: Value) -> None:
    assert jsonb.encode(value) == jsonb._write(plain_tree(value))


@PROFILE
@given(doubles())
def test_a_double_comes_back_unless_jsonb_cannot_hold_it(value: float) -> None:
    rebuilt = jsonb.decode(jsonb.encode(value))
    finite = value == value and abs(value) != float("inf")  # noqa: PLR0124 - NaN
    assert (float(rebuilt) if finite else rebuilt) == (value if finite else None)
    assert type(rebuilt) is not int or abs(value) >= 1e16


@PROFILE
@given(st.lists(keys() | st.integers(0, 20) | texts(), max_size=5))
def test_a_path_gives_back_its_steps(steps: list[str | int]) -> None:
    path = ""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else remainder.member_path(path, step)
    assert remainder.parse_path(path) == steps
    assert "\0" not in path
    assert not path.startswith("+")


@PROFILE
@given(identifiers(), identifiers())
def test_a_source_id_is_injective_and_gives_back_its_value(one: Value, other: Value) -> None:
    one, other = ({"_id": value} for value in (one, other))
    text = identity.source_id(one["_id"])
    assert "\0" not in text
    back = identity.parse_source_id(text)
    assert same({"_id": back}, {"_id": one["_id"]}) or _beyond_extended_json(one["_id"])
    if not same(one, other) and not _beyond_extended_json(one) and not _beyond_extended_json(other):
        assert text != identity.source_id(other["_id"])


def _beyond_extended_json(value: Value) -> bool:
    """Whether Extended JSON folds the value: odd encodings of NaN and decimals, equal to MongoDB."""
    return not same(identity.parse_source_id(identity.source_id([value])), [value])


@PROFILE
@given(identifiers(), texts(), texts())
def test_computed_ids_differ_by_table_tenant_collection_and_source(identifier: Value, tenant: str, other: str) -> None:
    text = identity.source_id(identifier)
    key = identity.row_id("runs", tenant, "runs", text, keep_uuid=False)
    assert key.version == 5
    assert key.variant == "specified in RFC 4122"
    others = {
        identity.row_id("schedules", tenant, "runs", text, keep_uuid=False),
        identity.row_id("runs", tenant + other + "x", "runs", text, keep_uuid=False),
        identity.row_id("runs", tenant, "runs2", text, keep_uuid=False),
        identity.row_id("runs", tenant, "runs", text + "x", keep_uuid=False),
    }
    assert len(others) == 4
    assert key not in others


@PROFILE
@given(texts(), texts(), identifiers())
def test_event_ids_stand_above_every_serial_and_fit_bigint(tenant: str, source: str, identifier: Value) -> None:
    assert 2**62 <= identity.event_id(tenant, source, identifier) < 2**63
    assert -(2**63) <= identity.stable_hash64(tenant) < 2**63


@PROFILE
@given(instants())
def test_times_survive_their_text(instant: datetime) -> None:
    text = times.format_iso(instant)
    assert times.parse_iso(text) == instant
    assert times.format_iso(times.parse_iso(text)) == text
    assert text.endswith("+00:00")


@PROFILE
@given(instants(), st.integers(0, 999))
def test_digits_beyond_microseconds_are_cut(instant: datetime, nanos: int) -> None:
    head = f"{instant:%H:%M:%S}.{instant.microsecond:06d}"
    text = f"{instant.year:04d}-{instant:%m-%d}T{head}{nanos:03d}Z"
    assert times.parse_iso(text) == instant


@PROFILE
@given(datetimes_within())
def test_bson_dates_survive_the_aware_form(moment: datetime) -> None:
    assert times.to_bson(times.from_bson(moment)) == moment


@PROFILE
@given(instants())
def test_bson_dates_are_cut_to_milliseconds_as_bson_does(instant: datetime) -> None:
    cut = times.to_bson(instant)
    assert document.decode(document.encode({"t": instant})) == {"t": cut}
    assert timedelta(0) <= instant - times.from_bson(cut) < timedelta(milliseconds=1)


@PROFILE
@given(st.integers(-(10**400), 10**400))
def test_integers_beyond_bson_are_doubles(value: int) -> None:
    inside = -(2**63) <= value < 2**63
    assert same(value, document.decode(document.encode({"v": value}))["v"])
    assert inside or same(value, document.double_of(value))
    assert same(remainder.read_typed(remainder.write_typed(value)), value)
