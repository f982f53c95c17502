"""The tail: after the copy, a change stream names documents, and the target is updated to what they are now.

The content of an event is never written. An event says that a document has changed. The document is read again, by a
majority read that is no older than the event, and is transformed by the code of the copy. So the order of events does
not matter, no event can be too large, and applying an event twice changes nothing (docs/tail.md).
"""
