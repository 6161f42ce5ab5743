"""Commands write their files completely or not at all."""

import json
import os
import secrets
import stat
import struct

import pytest
from ascend_sim.files import json_of, replacing, unwritable


@pytest.mark.parametrize("name", [".", "missing/x.json", "x" * 300, "file/x.json"])
def test_an_unwritable_path_is_reported(name, tmp_path):
    (tmp_path / "file").touch()
    assert unwritable(tmp_path / name).startswith("must be a file ")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_check_of_a_path_creates_no_file(tmp_path):
    assert unwritable(tmp_path / "x.json") is None
    assert list(tmp_path.iterdir()) == []


def test_the_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "x.json"
    with replacing(path) as stream:
        stream.write("complete")
        assert not path.exists()
    assert path.read_text() == "complete"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_exception_leaves_the_earlier_file(error, tmp_path):
    path = tmp_path / "x.json"
    path.write_text("earlier")

    def fail():
        with replacing(path) as stream:
            stream.write("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with replacing(tmp_path / "link") as stream:
        stream.write("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions(mode, tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    path.chmod(mode)
    with replacing(path) as stream:
        stream.write("text")
        assert [stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()] == [mode, mode]
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("text", mode)


def test_a_file_that_is_replaced_gets_no_access_list_of_its_folder(tmp_path):
    path, user, all_users = tmp_path / "x.json", 1234, 0xFFFFFFFF
    path.touch()
    path.chmod(0o640)
    # Tag, permissions and number: the owner, a user, the group, the mask, others.
    entries = ((1, 6, all_users), (2, 6, user), (4, 4, all_users), (16, 6, all_users), (32, 0, all_users))
    access_list = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path, "system.posix_acl_default", access_list)
    except OSError as error:
        pytest.skip(f"the file system has no access control lists: {error.strerror}")
    (tmp_path / "new").touch()
    assert "system.posix_acl_access" in os.listxattr(tmp_path / "new")
    with replacing(path) as stream:
        stream.write("text")
    assert (os.listxattr(path), stat.S_IMODE(path.stat().st_mode)) == ([], 0o640)


def test_special_bits_are_not_kept(tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    path.chmod(0o4755)
    with replacing(path) as stream:
        stream.write("text")
    assert stat.S_IMODE(path.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files to others")
def test_a_file_of_another_user_gives_no_permissions(tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    path.chmod(0o777)
    os.chown(path, 1234, 1234)
    with replacing(path) as stream:
        stream.write("text")
    (tmp_path / "new").touch()
    assert path.stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_name_may_have_as_many_bytes_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("é" * 127)
    assert unwritable(path) is None
    with replacing(path) as stream:
        stream.write("text")
    assert path.read_text() == "text"


def test_links_without_an_end_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert unwritable(tmp_path / "a").endswith("/a: Too many levels of symbolic links.")


def test_a_named_pipe_is_written_not_replaced(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert unwritable(path) is None
        with replacing(path) as stream:
            stream.write("text")
        assert os.read(reader, 99) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(tmp_path, monkeypatch):
    """In a folder that others may write, someone could guess the name of the temporary file."""
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / "other").write_text("of another program")
    link = tmp_path / ".x.json.guessed"
    link.symlink_to("other")
    with pytest.raises(FileExistsError), replacing(tmp_path / "x.json") as stream:
        stream.write("text")
    assert (tmp_path / "other").read_text() == "of another program"
    assert link.is_symlink()
    assert not (tmp_path / "x.json").exists()
    assert (
        unwritable(tmp_path / "x.json")
        == f"must be a file one may write but got {tmp_path}/x.json: File exists."
    )


def test_two_outputs_of_a_name_have_different_temporary_files(tmp_path):
    path = tmp_path / "x.json"
    with replacing(path) as first, replacing(path) as second:
        assert first.name != second.name


@pytest.mark.parametrize(
    "contents", ["\U0001f600 µ\n\t", {"a": ["\\ud800", {"é": 1.5}]}, [None, True, "\\x1b"]], ids=ascii
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_json_file_has_its_contents(contents, ascii_only, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(contents, ensure_ascii=ascii_only), encoding="utf-8")
    assert json_of(path, 1 << 20) == contents


@pytest.mark.parametrize("code", [0, 8, 0xC, 0xD, 0x1B, 0x7F, 0x9B, 0xD800, 0xDFFF], ids=hex)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_json_text_with_a_control_character_is_refused(code, ascii_only, tmp_path):
    character = chr(code)
    path = tmp_path / "x.json"
    for contents in (f"a{character}", {"k": [{f"{character}b": 1}]}, [[f"{character}"]]):
        text = json.dumps(contents, ensure_ascii=ascii_only or code >= 0xD800)
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"^one of its texts has the character U\+{code:04X}$"):
            json_of(path, 1 << 20)
