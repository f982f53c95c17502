"""The write block of somebody else: MongoDB 8.0 refuses a call with another reason, or with none."""

from datetime import timedelta
from typing import Any

import pytest
from pymongo import MongoClient

from migrator.cutover.fence import engage_source, lift_source
from migrator.errors import RefusedError
from migrator.testing.servers.mongo import MongoServer
from tests.product_server import NAMES, answers_of, product_server

WORDS = "Cannot enable the write block: it is held with the reason DiskUseThresholdExceeded"
REFUSED = {"code": 20, "codeName": "IllegalOperation", "errmsg": WORDS}


def test_it_is_named_and_stays(mongo_server: MongoServer, capsys: pytest.CaptureFixture[str]) -> None:
    answers = answers_of(next(name for name in NAMES if "community" in name))
    answers |= {"fails": {"setUserWriteBlockMode": REFUSED}}
    with product_server(answers, ("127.0.0.1", mongo_server.port)) as uri, MongoClient[Any](uri) as client:
        with pytest.raises(RefusedError, match=f"somebody else may have blocked: .*{WORDS}"):
            engage_source(client["shop"], "write-block", [], timedelta(seconds=5))
        lift_source(client["shop"], "write-block", [])
    assert f"somebody else's write block stays: {WORDS}" in capsys.readouterr().err
