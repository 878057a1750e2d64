"""Chunks of sections: nothing is lost, each says where it is from, ids stay the same."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.local import read_folder, split_sections


def section(text, **metadata):
    return Document(page_content=text, metadata={"source": "a.md", **metadata})


def texts(chunks):
    return [chunk.page_content for chunk in chunks]


def test_a_short_section_is_one_chunk_with_its_metadata():
    (chunk,) = split_sections([section("# A\n\nText.\n", heading="A", page=2, extra=[1])])
    assert chunk.page_content == "# A\n\nText."
    assert chunk.metadata == {
        "source": "a.md",
        "heading": "A",
        "page": 2,
        "extra": [1],
        "start_index": 0,
    }


def test_sections_are_not_changed_and_share_nothing_with_chunks():
    original = section("Text. " * 50, tags=["a"])
    for chunk in split_sections([original], chunk_size=40, chunk_overlap=0):
        chunk.metadata["tags"].append("b")
    assert original.metadata == {"source": "a.md", "tags": ["a"]}
    assert original.id is None


@pytest.mark.parametrize(
    ("text", "size", "expected"),
    [
        ("one two.\n\nthree four.", 15, ["one two.", "three four."]),
        ("one two.\n \t\nthree four.", 15, ["one two.", "three four."]),
        ("- one two\n- three four", 15, ["- one two", "- three four"]),
        ("One two. Three four? Five!", 14, ["One two.", "Three four?", "Five!"]),
        ('He said "no." Then left.', 15, ['He said "no."', "Then left."]),
        ("See v1.2.3 at a.b for it.", 13, ["See v1.2.3", "at a.b for", "it."]),
        ("返金は五日です。解約は自由。質問？", 8, ["返金は五日です。", "解約は自由。", "質問？"]),
        ("one two three", 8, ["one two", "three"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
    ],
)
def test_the_best_place_to_cut_is_taken(text, size, expected):
    assert texts(split_sections([section(text)], chunk_size=size, chunk_overlap=0)) == expected


def test_chunks_overlap_by_whole_sentences_at_most_as_asked():
    text = "Alpha one. Beta two. Gamma three. Delta four."
    chunks = split_sections([section(text)], chunk_size=24, chunk_overlap=12)
    assert texts(chunks) == ["Alpha one. Beta two.", "Beta two. Gamma three.", "Delta four."]
    assert [chunk.metadata["start_index"] for chunk in chunks] == [0, 11, 34]


@pytest.mark.parametrize(
    "options", [{"chunk_size": 0}, {"chunk_size": 50}, {"chunk_overlap": -1}, {"chunk_size": -5}]
)
def test_impossible_sizes_are_refused(options):
    with pytest.raises(ValueError, match=r"chunk"):
        split_sections([section("x")], **options)


def test_sections_may_come_from_a_generator_and_there_may_be_none():
    assert len(split_sections(section(text) for text in "ab")) == 2
    assert split_sections([]) == []


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_text_splitters", None)
    with pytest.raises(MissingExtraError, match=r'pip install "langchain-feedback\[local\]"'):
        split_sections([section("x")])


class TestIds:
    def test_they_are_16_hexadecimal_digits_and_the_same_on_every_run(self):
        sections = [section("Text. " * 50, heading="A"), section("Other.", page=3)]
        first, second = (split_sections(sections, chunk_size=50, chunk_overlap=10) for _ in "ab")
        assert [chunk.id for chunk in first] == [chunk.id for chunk in second]
        assert all(re.fullmatch(r"[0-9a-f]{16}", chunk.id) for chunk in first)

    @pytest.mark.parametrize(
        "other",
        [
            section("Other."),
            section("Text.", heading="B"),
            section("Text.", page=2),
            section(" Text."),
            Document("Text.", metadata={"source": "b.md"}),
        ],
    )
    def test_text_and_place_both_count(self, other):
        mine, others = split_sections([section("Text."), other])
        assert mine.id != others.id

    def test_metadata_that_is_no_place_does_not_count(self):
        (mine,), (others,) = (split_sections([section("Text.", seen=day)]) for day in (1, 2))
        assert mine.id == others.id

    def test_equal_sections_of_one_file_differ(self):
        chunks = split_sections([section("Same.", heading="A")] * 3)
        assert len({chunk.id for chunk in chunks}) == 3

    def test_a_copy_later_in_a_file_leaves_the_first_id_alone(self):
        alone = split_sections([section("Same.")])
        twice = split_sections([section("Same."), section("Same.")])
        assert twice[0].id == alone[0].id

    def test_text_that_no_encoding_takes_still_has_an_id(self):
        (chunk,) = split_sections([section("half a pair: \ud83d")])
        assert len(chunk.id) == 16


class TestHeadings:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.md", "# Top\n\n## [Sub `x`](y) ##\n\nText."),
            ("a.md", "Top\n===\n\nSub\nx\n---\nText."),
            ("a.md", "# Top &amp; more\n# <b>Sub</b> > x\nText."),
            ("a.html", "<h1>Top</h1><h2>Sub x</h2><p>Text.</p>"),
        ],
    )
    def test_a_heading_with_nothing_under_it_makes_no_chunk(self, tmp_path, name, content):
        (tmp_path / name).write_text(content)
        (chunk,) = split_sections(read_folder(tmp_path).sections)
        assert chunk.page_content.endswith("Text.")
        assert "Sub" in chunk.metadata["heading"]

    def test_a_heading_cut_off_from_a_long_paragraph_makes_no_chunk(self):
        chunks = split_sections(
            [section("# A\n\n" + "b" * 30, heading="A")], chunk_size=20, chunk_overlap=0
        )
        assert texts(chunks) == ["b" * 20, "b" * 10]

    def test_a_paragraph_that_repeats_the_heading_stays(self):
        text = "# Refunds\n\n" + "x" * 18 + "\n\nRefunds"
        chunks = split_sections([section(text, heading="Refunds")], chunk_size=20, chunk_overlap=0)
        assert texts(chunks) == ["x" * 18, "Refunds"]

    @pytest.mark.parametrize("text", ["# A", "A", "***", "Refunds"])
    def test_text_that_is_not_its_sections_heading_stays(self, text):
        assert texts(split_sections([section(text)])) == [text]
        assert texts(split_sections([section(text, heading="Other > Thing")])) == [text]


PIECES = st.sampled_from(
    [
        "a",
        "word",
        "Yes.",
        "No! ",
        "\n",
        "\n\n",
        " ",
        "\t",
        "，",
        "返金。",
        "x" * 9,
        "# H",
        "\u3000",
        "é",
    ]
)


@given(
    st.lists(st.lists(PIECES, max_size=40).map("".join), max_size=4),
    st.integers(1, 40),
    st.integers(0, 40),
)
def test_nothing_but_white_space_is_lost(contents, size, overlap):
    sections = [section(content, page=page) for page, content in enumerate(contents)]
    options = {"chunk_size": size, "chunk_overlap": min(size, overlap)}
    chunks = split_sections(sections, **options)
    for page, content in enumerate(contents):
        parts = [chunk for chunk in chunks if chunk.metadata["page"] == page]
        for part in parts:
            start, text = part.metadata["start_index"], part.page_content
            assert content[start : start + len(text)] == text
            assert 0 < len(text.strip()) <= len(text) <= size
        assert_covered(content, texts(parts))
    assert len({chunk.id for chunk in chunks}) == len(chunks)
    assert chunks == split_sections(sections, **options)


def assert_covered(content, parts):
    """Lay the parts over the text in their order, each as far on as leaves no gap."""
    squeezed, covered = "".join(content.split()), 0
    for part in ("".join(part.split()) for part in parts):
        starts = [at for at in range(covered + 1) if squeezed.startswith(part, at)]
        assert starts, f"{part!r} leaves a gap in {squeezed!r} after {covered}"
        covered = max(covered, starts[-1] + len(part))
    assert covered == len(squeezed)
