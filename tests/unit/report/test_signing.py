"""Signatures: what is signed cannot be changed, not in one byte; and what is no Ed25519 key is refused."""

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from migrator.cli import cli
from migrator.errors import RefusedError, UsageError
from migrator.report import integrity, renderer
from migrator.result import FORMAT, Result, build, encode
from tests.fabricated_results import clean, troubled

PEM = forms.Encoding.PEM
OPENSSH = forms.Encoding.OpenSSH


def pair(folder: Path, name: str = "key") -> tuple[Path, Path]:
    """Write a private and a public key; the same name always gives the same pair."""
    key = Ed25519PrivateKey.from_private_bytes(name.encode().ljust(32, b"."))
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(PEM, forms.PublicFormat.SubjectPublicKeyInfo))
    return private, public


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A signed report with its renderings."""
    renderer.write(troubled(), tmp_path)
    private, _ = pair(tmp_path)
    answer = CliRunner().invoke(cli, ["report", "sign", str(tmp_path / "result.json"), "--key", str(private)])
    assert answer.exit_code == 0, answer.output
    return tmp_path


def checked(folder: Path, *more: str) -> tuple[int, str]:
    answer = CliRunner().invoke(cli, ["report", "check", str(folder / "result.json"), *more])
    return answer.exit_code, answer.output


def asked(folder: Path, name: str = "key") -> tuple[int, str]:
    return checked(folder, "--public-key", str(pair(folder, name)[1]))


def change(folder: Path, alter: Callable[[Result], Result]) -> None:
    """Change the stored result and render it again: only the signature can tell."""
    result = alter(integrity.read_result(folder / "result.json"))
    renderer.write(result, folder)


def test_a_signed_report_belongs_and_names_its_key(folder: Path) -> None:
    status, said = asked(folder)
    assert status == 0
    assert "signed, evidence and run, with the key" in said
    assert "whose key" not in said
    assert "belongs to it" in said
    status, said = checked(folder)
    assert status == 0
    assert "whose key that is, only --public-key can tell" in said


def test_the_page_shows_the_key_and_the_other_half_does_not_change(folder: Path) -> None:
    signed = integrity.read_result(folder / "result.json")
    assert signed.signature is not None
    assert signed.signature.key.replace("+", "&#43;") in (folder / "report.html").read_text().replace("+", "&#43;")
    assert signed.digest == troubled().digest
    assert msgspec.structs.replace(signed, signature=None) == troubled()


def test_signing_again_gives_the_same_bytes(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    CliRunner().invoke(cli, ["report", "sign", str(folder / "result.json"), "--key", str(pair(folder)[0])])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_another_key_is_told_from_the_right_one(folder: Path) -> None:
    status, said = asked(folder, "other")
    assert status == 1
    assert "SIGNED WITH ANOTHER KEY" in said


def test_without_a_signature_a_wanted_one_is_missing(folder: Path) -> None:
    change(folder, lambda result: msgspec.structs.replace(result, signature=None))
    assert checked(folder)[0] == 0
    status, said = asked(folder)
    assert status == 1
    assert "NOT SIGNED" in said


def test_evidence_taken_together_with_its_digest_breaks_the_signature(folder: Path) -> None:
    def forge(result: Result) -> Result:
        forged = build(msgspec.structs.replace(result.evidence, quarantine=()), result.run)
        return msgspec.structs.replace(forged, signature=result.signature)

    change(folder, forge)
    status, said = checked(folder)
    assert status == 1
    assert "THE SIGNATURE DOES NOT MATCH" in said
    assert "the evidence is whole" in said


def test_the_run_is_signed_too(folder: Path) -> None:
    def forge(result: Result) -> Result:
        return msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, measurements=()))

    change(folder, forge)
    status, said = checked(folder)
    assert status == 1
    assert "THE SIGNATURE DOES NOT MATCH" in said


@pytest.mark.parametrize("file", ["report.html", "report.md", "junit.xml", "sarif.json"])
def test_one_byte_of_a_rendering_is_seen(folder: Path, file: str) -> None:
    content = bytearray((folder / file).read_bytes())
    place = content.index(b"118")
    content[place] ^= 1
    (folder / file).write_bytes(content)
    status, said = asked(folder)
    assert status == 1
    assert f"DOES NOT BELONG TO IT: {folder / file}" in said


def test_no_byte_of_the_result_can_be_changed(folder: Path) -> None:
    """Every 97th byte with its lowest bit turned: no longer a result, or red."""
    path, (_, public) = folder / "result.json", pair(folder)
    whole = path.read_bytes()
    for place in range(0, len(whole), 97):
        if whole[place : place + 1].isspace():
            continue  # outside of texts, white space means nothing
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            assert integrity.check_report(path, [folder / "report.md"], public).exit_status() & 1, place
        except UsageError:
            continue  # it is no result any more


@pytest.mark.parametrize("name", ["evidence", "digest", "run", "signature", "format"])
@pytest.mark.parametrize("spelling", ["{}", "\\u00{:x}{}"])
def test_a_forged_half_before_or_behind_the_true_one_is_refused(folder: Path, name: str, spelling: str) -> None:
    """Readers take the first or the last of two; with the first forged, the signature would fit the last."""
    path, (_, public) = folder / "result.json", pair(folder)
    true = json.loads(path.read_bytes())
    spelled = name if spelling == "{}" else spelling.format(ord(name[0]), name[1:])
    forged = f'"{spelled}": {json.dumps(true[name])}'
    whole = path.read_text().strip()
    for text in (f"{{{forged},{whole[1:]}", f"{whole[:-1]},{forged}}}"):
        path.write_text(text)
        with pytest.raises(UsageError, match=f"not a whole result: the name {name} occurs twice in one object"):
            integrity.check_report(path, [folder / "report.md"], public)


@pytest.mark.parametrize("place", ["evidence", "run", "signature"])
def test_a_name_that_nothing_was_signed_over_is_refused(folder: Path, place: str) -> None:
    path, (_, public) = folder / "result.json", pair(folder)
    forged = json.loads(path.read_bytes())
    forged[place]["verdict_of_the_board"] = "passed"
    path.write_text(json.dumps(forged))
    with pytest.raises(UsageError, match=rf"unknown field `verdict_of_the_board` - at `\$\.{place}`"):
        integrity.check_report(path, [folder / "report.md"], public)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"format": NaN}', f'{{"format": {FORMAT}, "x": {"9" * 5_000}}}'])
def test_a_text_that_is_no_result_is_refused_in_one_line(folder: Path, text: str) -> None:
    path = folder / "result.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a"):
        integrity.read_result(path)


def test_a_result_whose_signature_does_not_fit_is_not_rendered(folder: Path, tmp_path: Path) -> None:
    change(
        folder, lambda result: msgspec.structs.replace(result, run=msgspec.structs.replace(result.run, name="other"))
    )
    arguments = ["report", "render", str(folder / "result.json"), "--report-dir", str(tmp_path / "new")]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    assert done.stderr.endswith(": the signature does not match the result; nothing is rendered\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("field", ["key", "value"])
@pytest.mark.parametrize("value", ["", "AAAA", "not base64", "é"])
def test_a_damaged_signature_does_not_fit(folder: Path, field: str, value: str) -> None:
    def damage(result: Result) -> Result:
        assert result.signature is not None
        return msgspec.structs.replace(result, signature=msgspec.structs.replace(result.signature, **{field: value}))

    change(folder, damage)
    assert asked(folder)[0] == 1


def test_changed_evidence_is_not_signed(tmp_path: Path) -> None:
    key = integrity.read_private_key(pair(tmp_path)[0])
    with pytest.raises(RefusedError, match="it is not signed"):
        integrity.sign(msgspec.structs.replace(clean(), digest="sha256:0"), key)


def test_the_openssh_form_of_keys_is_read(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.from_private_bytes(b"key".ljust(32, b"."))
    private, public = tmp_path / "id_ed25519", tmp_path / "id_ed25519.pub"
    private.write_bytes(key.private_bytes(PEM, forms.PrivateFormat.OpenSSH, forms.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(OPENSSH, forms.PublicFormat.OpenSSH) + b" somebody\n")
    signed = integrity.sign(clean(), integrity.read_private_key(private))
    assert integrity.signature_state(signed, integrity.read_public_key(public)) == "good"


def test_a_key_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    renderer.write(clean(), tmp_path)
    other = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "ec.pem").write_bytes(other.private_bytes(PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()))
    (tmp_path / "ec.pub").write_bytes(other.public_key().public_bytes(PEM, forms.PublicFormat.SubjectPublicKeyInfo))
    locked = Ed25519PrivateKey.generate().private_bytes(
        PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(b"x")
    )
    (tmp_path / "locked.pem").write_bytes(locked)
    (tmp_path / "text.pem").write_text("no key at all")
    private, public = pair(tmp_path)
    cases = [
        ("sign", "--key", tmp_path / "ec.pem", "signatures are made with Ed25519 only"),
        ("sign", "--key", tmp_path / "locked.pem", "the key has a passphrase"),
        ("sign", "--key", tmp_path / "text.pem", "holds no private key"),
        ("sign", "--key", public, "holds no private key"),
        ("sign", "--key", tmp_path / "none.pem", "cannot read"),
        ("check", "--public-key", tmp_path / "ec.pub", "signatures are made with Ed25519 only"),
        ("check", "--public-key", tmp_path / "text.pem", "holds no public key"),
        ("check", "--public-key", private, "holds no public key"),
        ("check", "--public-key", tmp_path / "none.pub", "cannot read"),
    ]
    before = (tmp_path / "result.json").read_bytes()
    for command, option, file, message in cases:
        answer = CliRunner().invoke(cli, ["report", command, str(tmp_path / "result.json"), option, str(file)])
        assert isinstance(answer.exception, UsageError), (command, file)
        assert message in str(answer.exception)
        assert answer.exception.exit_status == 2
    assert (tmp_path / "result.json").read_bytes() == before


def test_without_the_extra_signing_is_refused_and_a_signature_is_left_unproven(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, public = pair(folder)
    program = (
        'import sys; sys.modules["cryptography"] = None; from migrator.report import integrity; print(integrity.SIGNS)'
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    monkeypatch.setattr(integrity, "SIGNS", False)
    with pytest.raises(UsageError, match="need the extra sign"):
        integrity.read_private_key(private)
    with pytest.raises(UsageError, match="need the extra sign"):
        integrity.check_report(folder / "result.json", public_key=public)
    answer = integrity.check_report(folder / "result.json")
    assert answer.exit_status() == 4
    assert "signed, and not verified: the extra sign is not installed" in answer.lines()


def test_the_signature_can_be_proven_without_this_tool(folder: Path) -> None:
    """By what docs/report.md says: two lines, each half as JSON with its keys sorted and no white space."""
    stored = json.loads((folder / "result.json").read_bytes())
    lines = ""
    for half in ("evidence", "run"):
        plain = json.dumps(stored[half], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        lines += f"migrator {half} sha256:{hashlib.sha256(plain.encode()).hexdigest()}\n"
    key = forms.load_pem_public_key((folder / "key.pub").read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    key.verify(base64.b64decode(stored["signature"]["value"]), lines.encode())


def test_a_result_is_replaced_in_one_step(tmp_path: Path) -> None:
    renderer.write_result(clean(), tmp_path / "result.json")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    assert (tmp_path / "result.json").read_bytes() == encode(clean())
    with pytest.raises(UsageError, match="cannot write"):
        renderer.write_result(clean(), tmp_path)


@pytest.mark.parametrize("field", ["key", "value"])
def test_another_spelling_of_the_same_bytes_is_no_signature(folder: Path, field: str) -> None:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    result = integrity.read_result(folder / "result.json")
    assert result.signature is not None
    text = getattr(result.signature, field)
    at = len(text.rstrip("=")) - 1
    other = text[:at] + alphabet[alphabet.index(text[at]) + 1] + text[at + 1 :]
    assert base64.b64decode(other) == base64.b64decode(text)
    changed = msgspec.structs.replace(result.signature, **{field: other})
    assert integrity.signature_state(msgspec.structs.replace(result, signature=changed)) == "bad"
