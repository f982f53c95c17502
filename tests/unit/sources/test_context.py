"""What decode may know besides the document: the configured tenant, the zone, and the instant of the plan."""

from datetime import UTC, datetime

import pytest

from migrator.config import SourceSettings, load_settings
from migrator.errors import ConfigurationError
from migrator.sources import context_of, profile_of
from migrator.sources.profile import Context

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stated", "zone"),
    [
        ("Europe/Vienna", "Europe/Vienna"),
        ("europe/vienna", "Europe/Vienna"),
        ("W. Europe Standard Time", "Europe/Berlin"),
        (None, None),
    ],
)
def test_the_zone_is_the_iana_name_of_the_configured_one(stated: str | None, zone: str | None) -> None:
    settings = load_settings({"source": {} if stated is None else {"zone": stated}}, {}).source
    assert context_of(settings, NOON) == Context(as_of=NOON, zone=zone)


def test_the_other_settings_are_passed_on() -> None:
    settings = SourceSettings(default_tenant="acme", carry_expired_locks=True)
    assert context_of(settings, NOON) == Context(as_of=NOON, default_tenant="acme", carry_expired_locks=True)


@pytest.mark.parametrize("zone", ["", "Europe/Atlantis", "+02:00"])
def test_a_zone_that_does_not_exist_is_refused_before_a_server_is_asked(zone: str) -> None:
    settings = SourceSettings(zone=zone)
    with pytest.raises(ConfigurationError, match=r"^source\.zone: time zone: expected a name of the IANA database"):
        profile_of(settings)
    with pytest.raises(ConfigurationError, match=r"^source\.zone: "):
        context_of(settings, NOON)


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Europe/Wien", "; did you mean Europe/Vienna?"),
        ("America/NewYork", "; did you mean America/New_York?"),
        ("W. Europe Standart Time", "; did you mean W. Europe Standard Time?"),
        ("CEST", ""),
    ],
)
def test_the_nearest_zone_is_named_unless_it_is_an_offset(zone: str, hint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        profile_of(SourceSettings(zone=zone))
    assert str(caught.value).endswith("or a Windows zone name" + hint)
