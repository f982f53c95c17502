"""Messages of mongodb-queue there and back twice, each taken once.

On PostgreSQL clients of pgmq take them, on MongoDB the statements of mongodb-queue.
"""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import ASCENDING, MongoClient, ReturnDocument
from pymongo.database import Database

from migrator.cutover import library_cutover, library_rollback, reverse_sync
from migrator.parity.check import check_parity
from migrator.pipeline.plan import Scope
from migrator.pipeline.sessions import close_cached
from migrator.testing.servers.mongo import MongoServer
from tests.library_scene import APPLICATION, LibraryScene, library_scene
from tests.native_tables import BY_NAME

Document = dict[str, Any]
DAY = timedelta(days=1)


def javascript(time: datetime) -> str:
    """Return a time as JavaScript's ``toISOString`` writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1000:03}Z"


class QueueScene(LibraryScene):
    """A queue of mongodb-queue, and one of pgmq."""

    made = BY_NAME["pgmq-1.13"]
    profile = "mongodb-queue"

    def taken(self) -> list[str]:
        """Let two clients of pgmq take what is visible; return the payloads."""
        lines = self.work(self.postgres, datetime.now(UTC))
        return [line["fields"]["message"]["of"] for line in lines if line["kind"] == "execution"]

    def taken_in_mongo(self) -> list[str]:
        """Take what is visible, and acknowledge it, by the statements of ``get`` and ``ack`` of mongodb-queue 4.0."""
        payloads = list[str]()
        with MongoClient[Document](self.uri_of(APPLICATION)) as client:
            queue = client[self.database.name]["queue"]
            while True:
                now = datetime.now(UTC)
                token = str(ObjectId())
                message = queue.find_one_and_update(
                    {"deleted": None, "visible": {"$lte": javascript(now)}},
                    {"$inc": {"tries": 1}, "$set": {"ack": token, "visible": javascript(now + DAY)}},
                    sort=[("_id", ASCENDING)],
                    return_document=ReturnDocument.AFTER,
                )
                if message is None:
                    return payloads
                payloads.append(message["payload"]["of"])
                is_held = {"ack": token, "visible": {"$gt": javascript(now)}, "deleted": None}
                assert queue.update_one(is_held, {"$set": {"deleted": javascript(now)}}).modified_count == 1

    def differs(self) -> bool:
        close_cached()
        return check_parity(self.settings, Scope()).differs


def add_messages(database: Database[Document], _: str) -> None:
    """Insert messages: due ones, one in flight, one for later, and one that is acknowledged."""
    now = datetime.now(UTC)
    past, later = javascript(now - DAY), javascript(now + 2 * DAY)
    messages: dict[str, Document] = {
        **{f"due {number}": {"visible": past} for number in range(6)},
        "flying": {"visible": later, "ack": "1" * 32, "tries": 2},
        "later": {"visible": later},
        "done": {"visible": past, "ack": "2" * 32, "tries": 1, "deleted": past},
    }
    database["queue"].insert_many([{**members, "payload": {"of": name}} for name, members in messages.items()])


@pytest.fixture
def queue(auth_server: MongoServer, postgres_dsn: str, tmp_path: Path) -> Iterator[QueueScene]:
    with library_scene(QueueScene, add_messages, auth_server, postgres_dsn, tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.proves("6-T9")
def test_each_message_is_taken_once_there_and_back(queue: QueueScene) -> None:
    seen = list[str]()
    for turn in range(2):
        library_cutover.run(queue.settings, queue.conditions)
        # one is taken and not deleted: it is in flight when the way leads back
        [(_, held)] = queue.execute("SELECT msg_id, message->>'of' FROM pgmq.read('queue', 86400, 1)")
        seen += queue.taken()
        queue.execute(f"SELECT pgmq.send('queue', '{{\"of\": \"new {turn}\"}}')")
        queue.execute(f"SELECT pgmq.send('queue', '{{\"of\": \"delayed {turn}\"}}', 86400)")
        assert library_cutover.confirm(queue.settings).library.failed == ()
        reverse_sync.run(queue.settings, noted_by_now=True)
        assert not queue.differs()
        done = library_rollback.run(queue.settings)
        assert done.lost.keys() <= {"pgmq/q_queue.vt"}, "microseconds"
        queue.follow()
        assert not queue.differs()
        documents = {one["payload"]["of"]: one for one in queue.database["queue"].find({"deleted": None})}
        assert not documents.keys() & {*seen}, "what pgmq deleted is pending nowhere"
        assert (documents[held]["tries"], documents[held]["visible"] > javascript(datetime.now(UTC))) == (1, True)
        assert documents["flying"]["tries"] == 2
        assert isinstance(documents[f"new {turn}"]["_id"], ObjectId)
        assert queue.taken_in_mongo() == [f"new {turn}"]
        seen.append(f"new {turn}")
        queue.database["queue"].insert_many(
            [
                {"visible": javascript(datetime.now(UTC)), "payload": {"of": f"old {turn} {number}"}}
                for number in range(3)
            ]
        )
        queue.follow()
    expected = Counter([*(f"due {number}" for number in range(1, 6)), "old 0 1", "old 0 2", "new 0", "new 1"])
    assert Counter(seen) == expected
    left = {one["payload"]["of"] for one in queue.database["queue"].find({"deleted": None})}
    assert left == {"due 0", "old 0 0", "flying", "later", "delayed 0", "delayed 1", *(f"old 1 {n}" for n in range(3))}
