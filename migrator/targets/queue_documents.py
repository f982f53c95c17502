"""What pgmq and procrastinate would say of documents of mongodb-queue and mongodb-cron, in the lines of their probes.

Neither library has a store in MongoDB. So the documents are read here with code of its own, and not by the mapping that
made the rows.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from bson.objectid import ObjectId

from migrator.targets.library import Line
from migrator.targets.quartz_documents import Document, Documents
from migrator.values import javascript, jsonb
from migrator.values.identity import source_id

QUEUE, DEAD, JOBS = "queue", "dead_queue", "jobs"


def messages_of(documents: Documents) -> Iterator[Line]:
    """Return a line for each message of both queues that nobody has acknowledged, as pgmq has it."""
    for collection in (QUEUE, DEAD):
        for message in _pending(documents, collection):
            sent = message["_id"].generation_time if isinstance(message["_id"], ObjectId) else None
            fields = {
                "read_ct": message.get("tries") or 0,
                "message": javascript.stringified(message.get("payload")),
                "headers": None,
                "enqueued_at": _in_utc(sent),
            }
            yield _line(collection, message, message.get("visible"), fields)


def jobs_of(documents: Documents) -> Iterator[Line]:
    """Return a line for each message and each document that is to be worked on once, as procrastinate has it."""
    for message in _pending(documents, QUEUE):
        fields = _job("todo", message)
        yield _line(QUEUE, message, message.get("visible"), fields)
    for letter in _pending(documents, DEAD):
        held = letter.get("payload")
        fields = _job("failed", held if isinstance(held, Mapping) else {})
        yield _line(DEAD, letter, letter.get("visible"), fields)
    for document in documents(JOBS):
        if document.get("sleepUntil") is not None:
            fields = {"status": "todo", "attempts": 0, "args": _args(id=document["_id"])}
            yield _line(JOBS, document, document["sleepUntil"], fields)


def key_of(collection: str, identity: str) -> str:
    """Return how an entry is named, by collection and source id of its document."""
    return f"{collection} {identity}"


def as_doubles(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a value of JSON whose numbers are those of JavaScript, in one spelling."""
    if isinstance(value, dict):
        return {name: as_doubles(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_doubles(inner) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        return int(number) if number.is_integer() else number
    return value


def _pending(documents: Documents, collection: str) -> Iterator[Document]:
    """Return the messages that nobody has acknowledged."""
    return (message for message in documents(collection) if message.get("deleted") is None)


def _job(status: str, message: Mapping[str, Any]) -> Line:
    tries = message.get("tries") or 0
    return {"status": status, "attempts": tries, "args": _args(payload=message.get("payload"))}


def _args(**given: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the arguments of a task; a null makes none."""
    return jsonb.decode(jsonb.encode({name: value for name, value in given.items() if value is not None}))


def _line(collection: str, document: Document, due: Any, fields: Line) -> Line:  # noqa: ANN401 - of a document
    key = key_of(collection, source_id(document["_id"]))
    return {"kind": "entry", "id": key, "due": _in_utc(due), "fields": fields}


def _in_utc(time: Any) -> Any:  # noqa: ANN401 - of a document
    """Return an instant as the probes print it; what is none, as it is. Dates of a document are naive, in UTC."""
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time)
        except ValueError:
            return time
    if not isinstance(time, datetime):
        return time if time is None else str(time)
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="microseconds")
