"""Which files of a folder are read, in what order, and what is said when something is wrong."""

import os
import sys
from pathlib import Path

import pytest

from langchain_feedback.errors import (
    EmptyFolderError,
    LangChainFeedbackError,
    MissingExtraError,
    NoTextError,
    UnreadableFileError,
)
from langchain_feedback.local import read_file, read_folder


def write(folder, **files):
    """Write files; `__` in a name is a folder, `_` before the last part a dot."""
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        path = folder / f"{stem.replace('__', '/')}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, encoding="utf-8")


def sources(folder, **options):
    return [section.metadata["source"] for section in read_folder(folder, **options).sections]


def test_reads_all_kinds_recursively_in_the_order_of_their_paths(tmp_path):
    write(tmp_path, b_txt="two", a__z_md="one", a__deep__er_htm="<p>nought", c_TEXT="three")
    write(tmp_path, d_markdown="four", e_HTML="five", skipped_csv="1,2", skipped_py="print()")
    assert sources(tmp_path) == [
        "a/deep/er.htm",
        "a/z.md",
        "b.txt",
        "c.TEXT",
        "d.markdown",
        "e.HTML",
    ]


def test_hidden_files_and_folders_are_skipped(tmp_path):
    write(tmp_path, seen_md="yes")
    write(tmp_path / ".git", config_txt="no")
    (tmp_path / ".draft.md").write_text("no")
    assert sources(tmp_path) == ["seen.md"]


def test_a_hidden_folder_is_read_when_it_is_the_one_asked_for(tmp_path):
    folder = tmp_path / ".notes"
    write(folder, seen_md="yes")
    assert sources(folder) == ["seen.md"]


def test_a_folder_with_the_name_of_a_file_is_a_folder(tmp_path):
    write(tmp_path / "book.md", one_txt="text")
    assert sources(tmp_path) == ["book.md/one.txt"]


def test_plain_text_is_one_section_without_heading_or_page(tmp_path):
    write(tmp_path, a_txt="# not a heading\r\n\r\ntext")
    (section,) = read_folder(tmp_path).sections
    assert section.page_content == "# not a heading\n\ntext"
    assert section.metadata == {"source": "a.txt"}


def test_a_single_file_is_a_folder_of_one(tmp_path):
    write(tmp_path, a_md="# T\nx", b_md="other")
    (section,) = read_folder(tmp_path / "a.md").sections
    assert section.metadata == {"source": "a.md", "heading": "T"}


def test_a_single_hidden_file_is_read_when_asked_for(tmp_path):
    (tmp_path / ".a.md").write_text("x")
    assert sources(tmp_path / ".a.md") == [".a.md"]


def test_read_file_names_the_source_relative_to_the_root(tmp_path):
    write(tmp_path, a__b_txt="x")
    path = tmp_path / "a" / "b.txt"
    assert read_file(path)[0].metadata["source"] == "b.txt"
    assert read_file(path, tmp_path)[0].metadata["source"] == "a/b.txt"


def test_a_string_is_taken_as_a_path(tmp_path):
    write(tmp_path, a_txt="x")
    assert sources(str(tmp_path)) == ["a.txt"]


def test_on_file_hears_of_every_file_before_it_is_read(tmp_path):
    write(tmp_path, a_txt="x", b_txt="y")
    calls = []
    read_folder(tmp_path, on_file=lambda *call: calls.append(call))
    assert calls == [(tmp_path / "a.txt", 1, 2), (tmp_path / "b.txt", 2, 2)]


def test_blank_files_are_ignored(tmp_path):
    write(tmp_path, a_txt=" \n\t\n", b_md="---\ntitle: x\n---\n", c_html="<br>", d_txt="x")
    assert sources(tmp_path) == ["d.txt"]


def test_a_folder_of_blank_files_is_empty(tmp_path):
    write(tmp_path, a_txt=" \n", b_md="")
    with pytest.raises(EmptyFolderError, match=r"no text in .* are blank") as error:
        read_folder(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("name", [None, "data.csv", ".hidden.md"])
def test_a_folder_without_a_file_of_a_known_kind_names_folder_and_kinds(tmp_path, name):
    if name:
        (tmp_path / name).write_text("x")
    with pytest.raises(EmptyFolderError) as error:
        read_folder(tmp_path)
    for part in (str(tmp_path), ".txt", ".md", ".html", ".pdf"):
        assert part in str(error.value)


def test_a_missing_folder_is_said_to_be_missing(tmp_path):
    with pytest.raises(LangChainFeedbackError, match=r"no folder or file at .*nowhere"):
        read_folder(tmp_path / "nowhere")


def test_a_single_file_of_another_kind_is_refused_with_the_kinds(tmp_path):
    write(tmp_path, a_docx="x")
    with pytest.raises(UnreadableFileError, match=r"a\.docx.*\.txt.*Convert it first"):
        read_folder(tmp_path / "a.docx")


def test_one_bad_file_raises_its_own_error(tmp_path):
    write(tmp_path, good_txt="x", bad_txt=b"\0\1\2")
    with pytest.raises(UnreadableFileError, match=r"bad\.txt.*NUL bytes.*UTF-8"):
        read_folder(tmp_path)


def test_several_bad_files_are_listed_in_one_error(tmp_path):
    write(tmp_path, a_txt=b"\0", b_pdf=b"no pdf", good_txt="x")
    with pytest.raises(UnreadableFileError, match="2 files or folders cannot be read") as error:
        read_folder(tmp_path)
    assert not isinstance(error.value, NoTextError)
    assert "a.txt" in str(error.value)
    assert "b.pdf" in str(error.value)


def test_skip_errors_returns_the_bad_files_and_the_rest(tmp_path):
    write(tmp_path, a_txt=b"\0", b_pdf=b"no pdf", good_txt="x")
    result = read_folder(tmp_path, skip_errors=True)
    assert [section.page_content for section in result.sections] == ["x"]
    assert [type(problem) for problem in result.problems] == [UnreadableFileError] * 2


def test_skip_errors_still_refuses_a_folder_without_text(tmp_path):
    write(tmp_path, a_txt=b"\0")
    with pytest.raises(EmptyFolderError, match=r"(?s)could be read.*a\.txt"):
        read_folder(tmp_path, skip_errors=True)


def test_a_result_cannot_be_changed(tmp_path):
    write(tmp_path, a_txt="x")
    result = read_folder(tmp_path)
    assert result.problems == []
    with pytest.raises(AttributeError):
        result.sections = []


def test_a_missing_package_is_named_with_the_extra(tmp_path, monkeypatch):
    write(tmp_path, a_md="x", b_txt="y")
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(MissingExtraError, match=r'pip install "langchain-feedback\[local\]"'):
        read_folder(tmp_path, skip_errors=True)


@pytest.mark.parametrize("method", ["is_dir", "exists"])
def test_a_path_that_may_not_be_looked_at_is_said_so(tmp_path, monkeypatch, method):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, method, refuse)
    with pytest.raises(UnreadableFileError, match=r"Cannot look at .*: Permission denied"):
        read_folder(tmp_path)


class TestLinks:
    def test_a_loop_ends(self, tmp_path):
        write(tmp_path, docs__a_md="x")
        (tmp_path / "docs" / "again").symlink_to(tmp_path, target_is_directory=True)
        (tmp_path / "docs" / "self").symlink_to(tmp_path / "docs", target_is_directory=True)
        assert sources(tmp_path) == ["docs/a.md"]
        assert sources(tmp_path / "docs") == ["a.md"]

    def test_a_folder_outside_is_followed_once(self, tmp_path):
        outside, folder = tmp_path / "outside", tmp_path / "folder"
        write(outside, a_md="x")
        write(folder, b_md="y")
        for name in ("one", "two"):
            (folder / name).symlink_to(outside, target_is_directory=True)
        (outside / "back").symlink_to(folder, target_is_directory=True)
        (outside / "round").symlink_to(outside, target_is_directory=True)
        assert sources(folder) == ["b.md", "one/a.md"]

    def test_a_linked_file_is_read_under_the_name_of_the_link(self, tmp_path):
        write(tmp_path, outside_md="x")
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "link.md").symlink_to(tmp_path / "outside.md")
        assert sources(tmp_path / "folder") == ["link.md"]

    @pytest.mark.parametrize("target", ["nowhere.md", "dangling.md"])
    def test_a_link_to_nothing_is_a_problem(self, tmp_path, target):
        write(tmp_path, a_md="x")
        (tmp_path / "dangling.md").symlink_to(tmp_path / target)
        with pytest.raises(UnreadableFileError, match=r"dangling\.md: it is a link that leads"):
            read_folder(tmp_path)


class TestWhatCannotBeOpened:
    def test_a_file_without_permission(self, tmp_path, monkeypatch):
        write(tmp_path, a_md="x", b_md="y")
        forbid(monkeypatch, tmp_path / "a.md")
        with pytest.raises(UnreadableFileError, match=r"a\.md: you have no permission"):
            read_folder(tmp_path)

    def test_a_file_that_a_broken_disk_holds(self, tmp_path, monkeypatch):
        write(tmp_path, a_md="x")
        forbid(monkeypatch, tmp_path / "a.md", OSError(5, "Input/output error"))
        with pytest.raises(UnreadableFileError, match=r"a\.md: Input/output error"):
            read_folder(tmp_path)

    def test_a_folder_without_permission(self, tmp_path, monkeypatch):
        write(tmp_path, a_md="x", locked__b_md="y")
        scan = os.scandir

        def refuse(path):
            if Path(path).name == "locked":
                raise PermissionError(13, "Permission denied", str(path))
            return scan(path)

        monkeypatch.setattr(os, "scandir", refuse)
        with pytest.raises(UnreadableFileError, match=r"Cannot list the folder .*locked"):
            read_folder(tmp_path)
        assert len(read_folder(tmp_path, skip_errors=True).problems) == 1

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
    def test_a_pipe_does_not_hang(self, tmp_path):
        write(tmp_path, a_md="x")
        os.mkfifo(tmp_path / "pipe.txt")
        with pytest.raises(UnreadableFileError, match=r"pipe\.txt: it is not a regular file"):
            read_folder(tmp_path)


def forbid(monkeypatch, forbidden, error=None):
    """Refuse one file: permissions alone do not stop tests that run as root."""
    read = Path.read_bytes

    def refuse(path):
        if path == forbidden:
            raise error or PermissionError(13, "Permission denied")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
