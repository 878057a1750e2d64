"""Sections of Markdown files: where they start, what they are called, and their exact wording."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.local import read_file
from langchain_feedback.local._markdown import markdown_sections


@pytest.fixture
def sections(tmp_path):
    def read(text):
        path = tmp_path / "a.md"
        path.write_text(text, encoding="utf-8")
        return [(doc.metadata.get("heading"), doc.page_content) for doc in read_file(path)]

    return read


def headings(sections):
    return [heading for heading, _ in sections]


def test_sections_are_slices_of_the_source_with_their_heading_lines(sections):
    text = "Before.\n\n# One\n\n*a* [b](c)\n\n## Two ##\n- d\n\n# Three\ne"
    found = sections(text)
    assert found == [
        (None, "Before.\n\n"),
        ("One", "# One\n\n*a* [b](c)\n\n"),
        ("One > Two", "## Two ##\n- d\n\n"),
        ("Three", "# Three\ne"),
    ]
    assert "".join(content for _, content in found) == text


def test_underlined_headings(sections):
    assert headings(sections("Top\n===\na\n\nLower\nstill\n---\nb")) == [
        "Top",
        "Top > Lower still",
    ]


def test_a_deeper_heading_first_and_a_level_left_out(sections):
    text = "### Deep\na\n# Top\nb\n#### Deeper\nc\n## Middle\nd"
    assert headings(sections(text)) == ["Deep", "Top", "Top > Deeper", "Top > Middle"]


@pytest.mark.parametrize(
    "text",
    [
        "```sh\n# comment\n```\n",
        "~~~\n# comment\n\n# more\n~~~\n",
        "    # indented code\n",
        "> # quoted\n",
        "- # in a list\n",
        "<!--\n# hidden\n-->\n",
        "#no-space\n",
        "a | b\n--- | ---\n",
    ],
)
def test_what_looks_like_a_heading_and_is_none(sections, text):
    assert sections(f"# Real\n{text}end") == [("Real", f"# Real\n{text}end")]


def test_an_unclosed_fence_runs_to_the_end(sections):
    assert headings(sections("# Real\n```\n# a\n# b\n")) == ["Real"]


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# The `max_retries` **option**", "The max_retries option"),
        ("# See [the guide](https://example.com/a_b)", "See the guide"),
        ("# ![Logo](logo.png) Name", "Logo Name"),
        ("# Q&amp;A <b>now</b>", "Q&A now"),
        ("# Was ist das?  ", "Was ist das?"),
        ("# A > B", "A > B"),
    ],
)
def test_titles_read_as_a_reader_sees_them(sections, line, heading):
    assert sections(f"{line}\nx") == [(heading, f"{line}\nx")]


def test_an_empty_heading_leaves_no_trace_in_the_trail(sections):
    assert headings(sections("#\na\n## Sub\nb")) == [None, "Sub"]


@pytest.mark.parametrize(
    "front_matter",
    [
        "---\ntitle: Refunds\ntags:\n  - money\n---\n",
        "---\n# comment\n\ntitle: x\n...\n",
        '---\n"quoted key": |\n  text\n\n  more\n---   \n',
        "---\n---\n",
    ],
)
def test_front_matter_is_dropped(sections, front_matter):
    assert sections(f"{front_matter}# A\nx") == [("A", "# A\nx")]


@pytest.mark.parametrize(
    "text",
    [
        "---\n\nA rule, then prose.\n\n---\n",
        "---\n# Heading between rules\n---\n",
        "---\ntitle: never closed\n",
        "text\n---\ntitle: not at the start\n---\n",
    ],
)
def test_rules_are_not_front_matter(sections, text):
    assert "".join(content for _, content in sections(text)) == text


def test_characters_that_python_takes_for_line_ends_do_not_shift_sections(sections):
    text = "a\x0bb\x0cc\u2028d\x85e\n# One\nf\n# Two\ng\n"
    assert sections(text)[1:] == [("One", "# One\nf\n"), ("Two", "# Two\ng\n")]


def test_a_file_without_headings_is_one_section(sections):
    assert sections("just\n\ntext\n") == [(None, "just\n\ntext\n")]


@given(st.text(alphabet="#=-_*`~>[]()<! \n\tab1.:", max_size=200))
def test_no_character_is_lost(text):
    sections = markdown_sections(f"x\n{text}")  # front matter cannot start on the second line
    assert "".join(section.text for section in sections).split() == f"x\n{text}".split()
