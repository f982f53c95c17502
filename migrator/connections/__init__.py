"""Connections to both servers: settings of a session, and the drivers' errors as errors of the tool."""

import sys
from importlib.util import find_spec

# MongoDB's driver asks for pyOpenSSL, and loads all of cryptography (the extra ``sign``) before it finds that there is
# none. That is a seventh of the start of a worker, so the driver is told what it would find out.
if find_spec("OpenSSL") is None:
    sys.modules.setdefault("pymongo.pyopenssl_context", None)  # type: ignore[arg-type] # None: an import fails
