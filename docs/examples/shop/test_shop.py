"""The tests of the shop: each runs on MongoDB and on PostgreSQL, as pyproject.toml says."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from jobs import confirmation, registry
from migrator import Scheduler
from migrator.testing import Scheduling
from shop import TENANT, MongoShop, PostgresShop, Shop, open_shop


@pytest.fixture
def shop(scheduling: Scheduling) -> Iterator[Shop]:
    with open_shop(scheduling.settings, scheduling.store) as opened:
        yield opened


@pytest.fixture
def scheduler(scheduling: Scheduling) -> Scheduler:
    return Scheduler(scheduling.store, TENANT)


def test_an_order_is_confirmed(shop: Shop, scheduling: Scheduling, scheduler: Scheduler) -> None:
    order = shop.place_order("ann@example.org")
    [call] = scheduling.run_until_idle(registry)
    assert (call.handler, call.arguments) == ("confirm", {"order": order, "customer": "ann@example.org"})
    assert call.result == {"order": order, "sent": "yes"}
    execution = scheduler.get_execution(call.run_id)
    assert execution is not None
    assert f"to ann@example.org: thank you for order {order}" in [line.message for line in execution.logs]


def test_a_mail_that_cannot_be_sent_is_tried_three_times(shop: Shop, scheduling: Scheduling) -> None:
    shop.place_order("nobody")
    calls = scheduling.run_for(timedelta(hours=1), registry)
    assert [(call.attempt, call.error) for call in calls] == [
        (attempt, "ValueError: the customer has no address") for attempt in (1, 2, 3)
    ]


@pytest.mark.usefixtures("shop")
def test_the_newsletter_comes_each_week(scheduling: Scheduling) -> None:
    calls = scheduling.run_for(timedelta(weeks=4), registry)
    assert [(call.handler, call.arguments["edition"]) for call in calls] == [("newsletter", "weekly")] * 4


def test_a_second_start_changes_nothing(shop: Shop, scheduling: Scheduling, scheduler: Scheduler) -> None:
    before = scheduler.get_by_name("newsletter")
    with open_shop(scheduling.settings, scheduling.store) as again:
        assert scheduler.get_by_name("newsletter") == before
        order = shop.place_order("ann@example.org")
        assert again.orders() == [order]


@pytest.mark.parametrize("migrator_backend", ["postgres"])
def test_an_order_that_is_rolled_back_has_no_mail(scheduling: Scheduling, scheduler: Scheduler) -> None:
    with psycopg.connect(scheduling.settings.postgres.dsn or "") as connection:
        shop = PostgresShop(connection, scheduler)
        with connection.transaction(force_rollback=True):
            shop.place_order("ann@example.org")
        assert shop.orders() == []
    assert scheduling.run_until_idle(registry) == []


@pytest.mark.parametrize("migrator_backend", ["mongo"])
def test_an_order_whose_shop_died_is_confirmed_after_the_next_start(
    scheduling: Scheduling, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: str) -> None:
        raise KeyboardInterrupt

    with open_shop(scheduling.settings, scheduling.store) as shop:
        monkeypatch.setattr("shop.confirmation", die)
        with pytest.raises(KeyboardInterrupt):
            shop.place_order("ann@example.org")
        assert scheduling.run_until_idle(registry) == []
        monkeypatch.setattr("shop.confirmation", confirmation)
    with open_shop(scheduling.settings, scheduling.store) as shop:
        assert isinstance(shop, MongoShop)
        shop.repair()
        [call] = scheduling.run_until_idle(registry)
        assert [call.arguments["order"]] == shop.orders()
