"""Writes the same jobs with APScheduler 3 into MongoDB and PostgreSQL: python write-apscheduler.py < JSON.

The JSON has ``uri``, ``database`` and ``dsn``. Each job is added twice with the same id, so that both stores hold what
the library itself writes there.
"""

import json
import sys
from datetime import UTC, datetime, timedelta
from types import ModuleType
from zoneinfo import ZoneInfo

import psycopg
import sqlalchemy
from apscheduler.jobstores.mongodb import MongoDBJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.combining import AndTrigger, OrTrigger
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger

VIENNA = ZoneInfo("Europe/Vienna")
START = datetime(2027, 1, 1, tzinfo=VIENNA)
PAUSED = ("and", "paused")
"""The scheduler of the library never comes to an end with an AndTrigger that has fired once."""
request = json.loads(sys.stdin.read())

shop = ModuleType("shop")


def send(*args: object, **kwargs: object) -> None:
    """Stand for the application's function."""


class Mailer:
    def __init__(self, name: str) -> None:
        self.name = name

    def mail(self, *args: object) -> None:
        """Stand for the application's method."""


for value in (send, Mailer):
    value.__module__ = "shop"
    setattr(shop, value.__name__, value)
sys.modules["shop"] = shop

scheduler = BackgroundScheduler(timezone=VIENNA)
engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(request["dsn"]))
scheduler.add_jobstore(MongoDBJobStore(database=request["database"], host=request["uri"]), "mongodb")
scheduler.add_jobstore(SQLAlchemyJobStore(engine=engine), "postgresql")
scheduler.start(paused=True)
jobs = {
    "cron": CronTrigger(hour=2, minute=30, day_of_week="mon-fri", timezone=VIENNA),
    "last": CronTrigger(day="last", hour="*/6", second="5,10", timezone="America/New_York"),
    "second": CronTrigger(
        day="2nd tue", hour=3, timezone=VIENNA, start_date=START, end_date=START + timedelta(days=400)
    ),
    "interval": IntervalTrigger(minutes=90, start_date=START, timezone=VIENNA),
    "days": IntervalTrigger(days=1, start_date=START.replace(hour=2, minute=30), timezone=VIENNA),
    "date": DateTrigger(datetime(2027, 6, 1, 12, 0, 0, 123456, tzinfo=VIENNA)),
    "calendar": CalendarIntervalTrigger(months=1, hour=2, start_date=START.date(), timezone=VIENNA),
    "and": AndTrigger(
        [CronTrigger(hour=8, timezone=VIENNA), CronTrigger(day_of_week="mon", hour="*", timezone=VIENNA)]
    ),
    "or": OrTrigger([CronTrigger(hour=8, timezone="UTC"), IntervalTrigger(hours=7, start_date=START)]),
    "paused": IntervalTrigger(hours=1, start_date=START, timezone=VIENNA),
    "method": CronTrigger(hour=9, timezone=VIENNA),
    "late": CronTrigger(month=12, hour=9, timezone=VIENNA, jitter=30),
    "odd": CronTrigger(minute=0, timezone=VIENNA),
}
mailer = Mailer("a")
for key, trigger in jobs.items():
    next_run_time = trigger.get_next_fire_time(None, START)  # once: it may have jitter
    for store in ("mongodb", "postgresql"):
        scheduler.add_job(
            mailer.mail if key == "method" else "shop:send",
            trigger,
            args=(1, b"\x00\xff", (START, timedelta(days=1)), {"a": {1, 2}}) if key == "odd" else ["x"],
            kwargs={"self": Mailer("inner"), "zone": UTC} if key == "odd" else {},
            id=key,
            name=f"job {key}",
            jobstore=store,
            coalesce=key != "interval",
            misfire_grace_time=None if key != "cron" else 60,
            max_instances=3,
            next_run_time=None if key in PAUSED else next_run_time,
        )
