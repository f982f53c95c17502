"""The tables of Quartz's JDBC job store, without its indexes, for tests that have no Java.

``tests/integration/targets/test_catalogues.py`` holds them to what Quartz's own script makes, through the catalogue.
"""

from typing import Any, Final

import psycopg

_TRIGGER: Final = "sched_name varchar(120), trigger_name varchar(200), trigger_group varchar(200)"
_OF_A_TRIGGER: Final = """PRIMARY KEY (sched_name, trigger_name, trigger_group),
    FOREIGN KEY (sched_name, trigger_name, trigger_group)
        REFERENCES qrtz_triggers (sched_name, trigger_name, trigger_group)"""
TABLES: Final = f"""
CREATE TABLE qrtz_job_details (
    sched_name varchar(120), job_name varchar(200), job_group varchar(200), description varchar(250),
    job_class_name varchar(250) NOT NULL, is_durable bool NOT NULL, is_nonconcurrent bool NOT NULL,
    is_update_data bool NOT NULL, requests_recovery bool NOT NULL, job_data bytea,
    PRIMARY KEY (sched_name, job_name, job_group));
CREATE TABLE qrtz_triggers (
    {_TRIGGER}, job_name varchar(200) NOT NULL, job_group varchar(200) NOT NULL, description varchar(250),
    next_fire_time bigint, prev_fire_time bigint, priority integer, trigger_state varchar(16) NOT NULL,
    trigger_type varchar(8) NOT NULL, start_time bigint NOT NULL, end_time bigint, calendar_name varchar(200),
    misfire_instr smallint, job_data bytea, PRIMARY KEY (sched_name, trigger_name, trigger_group),
    FOREIGN KEY (sched_name, job_name, job_group) REFERENCES qrtz_job_details (sched_name, job_name, job_group));
CREATE TABLE qrtz_simple_triggers (
    {_TRIGGER}, repeat_count bigint NOT NULL, repeat_interval bigint NOT NULL, times_triggered bigint NOT NULL,
    {_OF_A_TRIGGER});
CREATE TABLE qrtz_cron_triggers (
    {_TRIGGER}, cron_expression varchar(120) NOT NULL, time_zone_id varchar(80), {_OF_A_TRIGGER});
CREATE TABLE qrtz_simprop_triggers (
    {_TRIGGER}, str_prop_1 varchar(512), str_prop_2 varchar(512), str_prop_3 varchar(512), int_prop_1 int,
    int_prop_2 int, long_prop_1 bigint, long_prop_2 bigint, dec_prop_1 numeric(13, 4), dec_prop_2 numeric(13, 4),
    bool_prop_1 bool, bool_prop_2 bool, {_OF_A_TRIGGER});
CREATE TABLE qrtz_blob_triggers ({_TRIGGER}, blob_data bytea, {_OF_A_TRIGGER});
CREATE TABLE qrtz_calendars (
    sched_name varchar(120), calendar_name varchar(200), calendar bytea NOT NULL,
    PRIMARY KEY (sched_name, calendar_name));
CREATE TABLE qrtz_paused_trigger_grps (
    sched_name varchar(120), trigger_group varchar(200), PRIMARY KEY (sched_name, trigger_group));
CREATE TABLE qrtz_fired_triggers (
    sched_name varchar(120), entry_id varchar(95), trigger_name varchar(200) NOT NULL,
    trigger_group varchar(200) NOT NULL, instance_name varchar(200) NOT NULL, fired_time bigint NOT NULL,
    sched_time bigint NOT NULL, priority integer NOT NULL, state varchar(16) NOT NULL, job_name varchar(200),
    job_group varchar(200), is_nonconcurrent bool, requests_recovery bool, PRIMARY KEY (sched_name, entry_id));
CREATE TABLE qrtz_scheduler_state (
    sched_name varchar(120), instance_name varchar(200), last_checkin_time bigint NOT NULL,
    checkin_interval bigint NOT NULL, PRIMARY KEY (sched_name, instance_name));
CREATE TABLE qrtz_locks (sched_name varchar(120), lock_name varchar(40), PRIMARY KEY (sched_name, lock_name));
"""


def make(dsn: str) -> None:
    """Make the tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES)


def rows(dsn: str, table: str, *columns: str) -> list[Any]:
    """Return the rows of a table, in the order of its columns."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2").fetchall()
