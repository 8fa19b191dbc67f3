"""Containers: every form of a snapshot file, and every way in which it can be broken."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import zipfile
from pathlib import Path

import orjson
import pytest

from kai_cp.reader.container import Source, UnreadableSnapshot, load, sources
from tests.kai_cp.reader.raw import snapshot

TEXT = orjson.dumps(snapshot())


class _Pipe(io.RawIOBase):
    """A stream that cannot seek. KAI writes its zip to one, so entries get data descriptors."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.data += data
        return len(data)


def streamed_zip(**entries: bytes) -> bytes:
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name.replace("_", "."), data)
    return bytes(pipe.data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.zip", streamed_zip(other_txt=b"no", snapshot_json=TEXT)),
        ("a.json", TEXT),
        ("a.json", b"\n " + TEXT + b"\n"),
        ("a.json.gz", gzip.compress(TEXT)),
        ("no-suffix", streamed_zip(snapshot_json=TEXT)),
    ],
)
def test_every_container_gives_the_same_snapshot(tmp_path: Path, name: str, data: bytes) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    assert load(file).raw == load(data).raw == snapshot()


def test_the_hash_is_that_of_the_json_text() -> None:
    expected = hashlib.sha256(TEXT).hexdigest()
    assert load(TEXT).sha256 == load(gzip.compress(TEXT)).sha256 == expected


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    data = streamed_zip(snapshot_json=TEXT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert load("-").raw == snapshot()


BIG = orjson.dumps(snapshot(comment=["x" * 100_000]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (TEXT[:-20], "ends in the middle"),
        (TEXT[: len(TEXT) // 2] + b"\n", "ends in the middle"),
        (b"{'a': 1}", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b'{"a":' * 9_000, "nested too deep"),
        (b"[" * 40_000, "not a KAI snapshot"),
        (b"[]", "not a KAI snapshot"),
        (b"null", "not a KAI snapshot"),
        (b'{"rawObjects": []}', "no rawObjects"),
        (orjson.dumps({"snapshot": snapshot()}), "no rawObjects"),
        (b"PK\x03\x04 but no zip", "damaged or cut short"),
        (streamed_zip(snapshot_json=TEXT)[:-30], "damaged or cut short"),
        (streamed_zip(other_json=TEXT), "no entry snapshot.json"),
        (gzip.compress(TEXT)[:-9], "damaged or cut short"),
        (b"\x1f\x8b not gzip at all", "damaged or cut short"),
        (streamed_zip(snapshot_json=BIG), "larger than the limit of 50000 bytes"),
        (gzip.compress(BIG), "larger than the limit"),
        (BIG, "larger than the limit"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_in_one_sentence(data: bytes, words: str) -> None:
    with pytest.raises(UnreadableSnapshot, match=words) as caught:
        load(data, max_bytes=50_000)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith("."), "as every other error"


def test_a_corrupt_zip_entry_is_refused() -> None:
    data = bytearray(streamed_zip(snapshot_json=TEXT))
    middle = data.index(b"snapshot.json") + len("snapshot.json") + 40
    data[middle] ^= 0xFF
    with pytest.raises(UnreadableSnapshot, match="damaged"):
        load(bytes(data))


@pytest.mark.parametrize("name", ["a.zip", "a.json.gz"])
def test_a_wrong_suffix_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(TEXT)
    with pytest.raises(UnreadableSnapshot, match="this is not a"):
        load(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSnapshot, match=r"none\.json: No such file"):
        load(tmp_path / "none.json")


def test_inputs_are_opened_and_named_apart(tmp_path: Path) -> None:
    for name in ("b.json", "a.zip", "a.json.gz", "readme.txt"):
        (tmp_path / name).write_bytes(b"")
    found = sources([tmp_path, "x/a.json", "-"])
    assert found == [
        Source(str(tmp_path / "a.json.gz"), "a"),
        Source(str(tmp_path / "a.zip"), "a-2"),
        Source(str(tmp_path / "b.json"), "b"),
        Source("x/a.json", "a-3"),
        Source("-", "stdin"),
    ]


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSnapshot, match="holds no"):
        sources([tmp_path])
