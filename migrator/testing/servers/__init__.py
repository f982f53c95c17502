"""Real MongoDB and PostgreSQL servers from wheels (extra ``embedded``), for the demo, rehearsals and the tests.

No root, no Docker, no download at run time. Each server lives in a private directory, listens on loopback only, and
dies with the process that started it, also when that process is killed; `guardian` says how. For a rehearsal that
process is a daemon, which goes on when the command has ended (`daemon`).
"""
