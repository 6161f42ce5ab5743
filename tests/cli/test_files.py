"""Commands write their files completely or not at all."""

import os
import stat

import pytest
from ascend_sim.files import replacing, unwritable


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
