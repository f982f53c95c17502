"""The tail: after the copy, a change stream names documents, and the target shows them as they are now.

No event's content is ever written. An event says that a document was touched; the document is read again, at a majority
and not before the event, and goes through the very code of the copy. Hence no order of events can be got wrong, no
event can be too large, and doing one twice changes nothing (docs/tail.md).
"""
