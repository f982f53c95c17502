"""From the command line: verify and sign, prove the report, change it; narrow and widen; and what stays on record."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pymongo.database import Database

from migrator.report import renderer
from tests.copying import run, run_of, settings_for, write_config


@pytest.fixture
def config(mongo_database: Database[Any], scheduler_dsn: str, tmp_path: Path) -> Path:
    """A source that is copied whole."""
    mongo_database["runs"].insert_many([run_of(_id="r1"), run_of(_id="r2")])
    path = write_config(tmp_path, settings_for(mongo_database, scheduler_dsn))
    status, _, said = run("backfill", "--config", str(path))
    assert status == 0, said
    return path


def keys(folder: Path) -> tuple[Path, Path]:
    key = Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "key.pub"
    private.write_bytes(key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.mark.proves("0-T2.11.6")
def test_a_verification_is_signed_proven_and_found_out_when_changed(config: Path, tmp_path: Path) -> None:
    private, public = keys(tmp_path)
    wide = ("--only", "schema", "--only", "parity", "--fail-on", "performance", "--fail-on", "no-locking")
    status, out, said = run("verify", *wide, "--sign-key", str(private), "--config", str(config), cwd=tmp_path)
    assert status == 4, said
    assert "verify: 1/" in said
    assert " in total)" in said
    (folder,) = (one for one in (tmp_path / "reports").iterdir() if one.is_dir())
    assert {path.name for path in folder.iterdir()} == {"result.json", *renderer.RENDERINGS}
    evidence = json.loads((folder / "result.json").read_bytes())["evidence"]
    assert evidence["policy"]["fail_on"] == ["performance"]
    assert evidence["policy"]["accepted"] == ["locking"]
    assert evidence["policy"]["only"] == ["schema", "parity"]
    assert "left out on request" in out
    checked = ("report", "check", str(folder / "result.json"), "--public-key", str(public))
    status, out, _ = run(*checked)
    assert status == 0, out
    assert out.count("belongs to it") == len(renderer.RENDERINGS)
    page = folder / "report.html"
    page.write_bytes(page.read_bytes().replace(b"2 documents", b"3 documents", 1))
    status, out, _ = run(*checked)
    assert status == 1
    assert "DOES NOT BELONG TO IT" in out


def test_a_key_that_cannot_be_read_stops_the_verification_before_it_begins(config: Path, tmp_path: Path) -> None:
    status, _, said = run("verify", "--sign-key", "none.pem", "--config", str(config), cwd=tmp_path)
    assert status == 2
    assert said == "migrator: cannot read none.pem: no such file or directory\n"
    assert not (tmp_path / "reports").exists()


def test_a_difference_in_the_data_is_not_to_be_declared_acceptable(config: Path, tmp_path: Path) -> None:
    status, _, said = run("verify", "--fail-on", "no-parity", "--config", str(config), cwd=tmp_path)
    assert status == 2
    assert said.startswith("migrator: --fail-on no-parity: a difference found there is never acceptable")
    assert not (tmp_path / "reports").exists()


def test_what_was_left_out_is_an_error_for_the_readers_of_junit(config: Path, tmp_path: Path) -> None:
    status, _, said = run("verify", "--only", "schema", "--config", str(config), cwd=tmp_path)
    assert status == 4, said
    (folder,) = (one for one in (tmp_path / "reports").iterdir() if one.is_dir())
    root = ET.parse(folder / "junit.xml").getroot()
    assert int(root.attrib["errors"]) > 0
    assert root.attrib["failures"] == "0"
    left_out = {error.attrib["type"] for error in root.iter("error")}
    assert left_out == {"left-out"}
