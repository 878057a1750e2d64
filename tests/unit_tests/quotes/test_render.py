"""What a source says is plain text wherever it is shown, and what is marked is proved."""

import re
import time
import unicodedata
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from langchain_feedback.quotes.plain import link_of, plain_text
from langchain_feedback.quotes.render import NOT_FOUND, to_html, to_markdown, to_terminal
from langchain_feedback.quotes.segments import Segment, answer_segments, segments, source_segments

CHUNK = "Refunds take 14 days. Ask by mail."
HOSTILE = [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    '"><b onclick=alert(1)>',
    "</mark></p></section><h1>mine</h1>",
    "&lt;b&gt; &amp; &#60;",
    "](http://evil.example)",
    "[click](javascript:alert(1))",
    "![x](http://evil.example/pixel.png)",
    "<https://evil.example>",
    "[a]: http://evil.example\n\n[a]",
    "# Heading\n\n- one\n- two\n\n1. three\n2) four\n> said",
    "Heading\n===\nOther\n---",
    "| a | b |\n|---|---|\n| c | d |",
    "```\ncode\n```\n~~~\nmore\n~~~",
    "`code` ``more`` *a* **b** __c__ ~~d~~",
    "    indented\n\n\tcode",
    "a line  \nanother\\\nthird",
    "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J",
    "\u202eevil\u202c \u2066a\u2069 \u200f",
    "zero\u200bwidth\ufeff soft\u00adhyphen \U000e0041",
    "lone \ud800 surrogate",
    "^ $ end $x^2$ :smile: @name [^1]",
]
OUR_TAGS = {"a", "br", "mark", "p", "section", "span", "sup"}
OUR_IDS = re.compile(r"passage-\d+-\d+")
texts = (
    st.text(max_size=60) | st.sampled_from(HOSTILE) | st.text("ab *_`[]()<>&#\n\\.-1", max_size=40)
)


def cited(text, start, end, **changes):
    """A citation of a passage of the chunk `a`, or with `verified=False` of none."""
    citation = {
        "claim": text[start:end],
        "answer_start": start,
        "answer_end": end,
        "chunk_id": "a",
        "source": "faq.md",
        "quote": text[start:end],
        "start": start,
        "end": end,
        "verified": True,
        "occurrences": 1,
    }
    return citation | changes


def unverified(text, quote, **changes):
    found_nowhere = {"quote": quote, "verified": False, "occurrences": 0}
    return cited(text, 0, len(text)) | found_nowhere | changes


class Page(HTMLParser):
    """Reads HTML back: the text (without numbers), the marked text, tags, ids and links."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.attributes, self.ids, self.links = [], set(), [], []
        self.text, self.marked, self.open = "", [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name == "href"]
        if tag == "mark":
            self.marked.append("")
        if tag != "br":
            self.open.append((tag, dict(attrs).get("class")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        inside = [tag for tag, _ in self.open]
        if "sup" in inside or not {"answer", "source-text"} & {name for _, name in self.open}:
            return
        self.text += data
        if "mark" in inside:
            self.marked[-1] += data


def markdown_page(markdown):
    """What a Markdown parser makes of it: the kinds of its tokens, and the text."""
    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    tokens = parser.parse(markdown)
    inner = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in tokens} | {token.type for token in inner}
    shown = ("text", "text_special")
    text = "".join(c.content if c.type in shown else "\n" * (c.type == "hardbreak") for c in inner)
    return kinds, text


# Segments.


def test_overlapping_and_touching_spans_are_cut_at_each_border():
    found = segments("abcdefgh", [(1, 4, 1), (3, 6, 2), (6, 7, 3), (1, 4, 4)])
    assert found == [
        Segment("a", ()),
        Segment("bc", (1, 4)),
        Segment("d", (1, 2, 4)),
        Segment("ef", (2,)),
        Segment("g", (3,)),
        Segment("h", ()),
    ]


def test_spans_of_one_citation_that_touch_are_one():
    assert segments("abcd", [(0, 2, 1), (2, 3, 1)]) == [Segment("abc", (1,)), Segment("d", ())]


@pytest.mark.parametrize("span", [(2, 2, 1), (3, 1, 1), (9, 12, 1), (-5, -1, 1)])
def test_a_span_of_nothing_marks_nothing(span):
    assert segments("abc", [span]) == [Segment("abc", ())]
    assert segments("", [span]) == []


@given(st.text(max_size=30), st.lists(st.tuples(*[st.integers(-3, 33)] * 2, st.integers(1, 4))))
def test_segments_are_the_text_and_cover_what_the_spans_cover(text, spans):
    found = segments(text, spans)
    assert "".join(segment.text for segment in found) == text
    covered = [segment.numbers for segment in found for _ in segment.text]
    for at, numbers in enumerate(covered):
        assert numbers == tuple(sorted({n for start, end, n in spans if start <= at < end}))
    assert all(one.numbers != two.numbers for one, two in pairwise(found))


def test_only_a_proved_passage_of_this_chunk_that_still_stands_there_is_marked():
    citations = [
        cited(CHUNK, 13, 20),
        unverified(CHUNK, "41 days"),
        cited(CHUNK, 0, 7, chunk_id="b"),
        cited(CHUNK, 22, 33, quote="Ask by post"),
    ]
    found = source_segments(CHUNK, "a", citations)
    assert [(s.text, s.numbers) for s in found if s.numbers] == [("14 days", (1,))]


def test_a_citation_of_the_whole_answer_covers_no_part_of_it():
    citations = [cited(CHUNK, 0, 21), cited(CHUNK, 0, len(CHUNK), claim="")]
    assert answer_segments(CHUNK, citations) == [
        Segment(CHUNK[:21], (1,)),
        Segment(CHUNK[21:], ()),
    ]


# HTML.


def test_html_marks_passages_with_anchors_to_which_the_answer_links():
    answer = "It takes 14 days."
    citation = cited(CHUNK, 13, 20) | {"claim": answer, "answer_start": 0, "answer_end": 17}
    source = Page(to_html(CHUNK, [citation], chunk_id="a", group=3))
    shown = Page(to_html(answer, [citation], group=3))
    assert (source.text, source.marked, source.ids) == (CHUNK, ["14 days"], ["passage-3-1"])
    assert (shown.text, shown.marked, shown.links) == (answer, [answer], ["#passage-3-1"])


def test_html_overlapping_passages_have_one_anchor_each():
    citations = [cited(CHUNK, 0, 12), cited(CHUNK, 8, 20), cited(CHUNK, 8, 20)]
    page = Page(to_html(CHUNK, citations, chunk_id="a"))
    assert page.ids == ["passage-1-1", "passage-1-2", "passage-1-3"]
    assert page.marked == ["Refunds ", "take", " 14 days"]


def test_html_says_that_a_quote_was_not_found_and_marks_nothing():
    citations = [unverified(CHUNK, "41 <b>days</b>", claim="", answer_end=17)]
    source, shown = to_html(CHUNK, citations, chunk_id="a"), to_html("41 days.", citations)
    assert f'id="passage-1-1">[1] {NOT_FOUND}: 41 &lt;b&gt;days&lt;/b&gt;</p>' in source
    assert Page(source).marked == Page(shown).marked == []
    assert shown.endswith('<sup><a href="#passage-1-1">[1?]</a></sup></p>')


@pytest.mark.parametrize(
    ("source", "url"),
    [
        ("https://example.org/a?b=1&c=2", "https://example.org/a?b=1&c=2"),
        ("http://example.org/a.pdf, page 3", "http://example.org/a.pdf"),
        ("https://example.org/a > Refunds & more", "https://example.org/a"),
        ('https://example.org/"onmouseover=x', "https://example.org/%22onmouseover=x"),
        ("https://example.org/<b>", "https://example.org/%3Cb%3E"),
        ("https://example.org/ä", "https://example.org/%C3%A4"),
        ("javascript:alert(1)", None),
        ("JavaScript://x.org/%0Aalert(1)", None),
        ("data:text/html,x", None),
        ("file:///etc/passwd", None),
        ("//example.org", None),
        ("https://", None),
        ("https://[bad", None),
        ("see https://example.org", None),
        ("https://example.org\u202e/gpj", None),
        ("guide.pdf, page 3", None),
        ("", None),
    ],
)
def test_only_an_http_source_becomes_a_link(source, url):
    assert link_of(source) == url
    citations = [cited(CHUNK, 13, 20, source=source)]
    assert Page(to_html(CHUNK, citations, chunk_id="a")).links == ([url] if url else [])
    assert ("link_open" in markdown_page(to_markdown(CHUNK, citations, chunk_id="a"))[0]) is bool(
        url
    )


def test_a_group_is_a_number():
    with pytest.raises(ValueError, match="format code"):
        to_html(CHUNK, [], group='1" onclick="x')


@given(texts, texts, texts, st.integers(0, 60), st.integers(0, 60))
def test_html_of_any_text_reads_back_as_the_text_in_our_tags_only(text, source, quote, at, to):
    citations = [cited(text, at, to, source=source), unverified(text, quote, source=source)]
    for markup in (to_html(text, citations, chunk_id="a"), to_html(text, citations)):
        page = Page(markup)
        assert page.text == plain_text(text)
        assert set(page.tags) <= OUR_TAGS
        assert page.attributes <= {"class", "dir", "href", "id", "rel"}
        assert len(set(page.ids)) == len(page.ids)
        assert all(OUR_IDS.fullmatch(identity) for identity in page.ids)
        assert all(re.match(r"#passage-|https?://", link) for link in page.links)
        assert not page.open
        markup.encode()
    anchors = Page(to_html(text, citations, chunk_id="a")).ids
    links = Page(to_html(text, citations)).links
    assert {f"#{identity}" for identity in anchors} == set(links)


# Markdown.


def test_markdown_marks_passages_in_bold_and_numbers_them():
    citations = [cited(CHUNK, 0, 12), cited(CHUNK, 8, 20), unverified(CHUNK, "41 *days*")]
    assert to_markdown(CHUNK, citations, chunk_id="a").split("\n\n") == [
        r"faq\.md",
        r"**Refunds take\[1\] 14 days**\[2\]\. Ask by mail\.",
        rf"\[3\] {NOT_FOUND}\: 41 \*days\*",
    ]
    whole = cited(CHUNK, 0, len(CHUNK), claim="")
    assert to_markdown("Soon.", [whole]) == r"Soon\.\[1\]"


@pytest.mark.parametrize(
    ("text", "passage"),
    [
        ("He said(14 days)to me", "(14 days)"),
        ("退款「十四天」内", "「十四天」"),
        ("a 14 days b", " 14 days "),
        ("a\n14 days.\nb", "\n14 days.\n"),
        ("x14 days.y", "14 days."),
        ('x"14" days"y', '"14" days"'),
        ("x_14 days_y", "_14 days_"),
        ("00: 0", ": 0"),
        ("a: \n b", ": \n b"),
        ("5€(14 days)", "(14 days)"),
        ("e\u0301(14 days)", "(14 days)"),
        ("take €5 or so", "€5"),
    ],
)
def test_a_passage_is_bold_whatever_stands_around_it(text, passage):
    start = text.index(passage)
    written = to_markdown(text, [cited(text, start, start + len(passage))])
    kinds, shown = markdown_page(written)
    assert kinds >= {"strong_open", "strong_close"}
    assert shown.replace("[1]", "") == text


@given(texts, st.integers(0, 60), st.integers(0, 60))
def test_markdown_of_any_text_is_that_text_without_markup(text, at, to):
    citations = [cited(text, at, to), unverified(text, text)]
    kinds, shown = markdown_page(to_markdown(text, citations))
    assert kinds <= {
        "paragraph_open", "paragraph_close", "inline", "text", "text_special", "hardbreak",
        "strong_open", "strong_close",
    }  # fmt: skip
    bare = to_markdown(text, [])
    assert squeezed(markdown_page(bare)[1]) == squeezed(plain_text(text))
    assert squeezed(re.sub(r"\[[12]\??\]", "", shown)) == squeezed(
        re.sub(r"\[[12]\??\]", "", plain_text(text))
    )


def squeezed(text):
    """White space at the ends and around line breaks is nothing that Markdown keeps."""
    return re.sub(r"\s*\n\s*", "\n", text).strip()


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_of_a_hostile_source_is_one_paragraph(text):
    citations = [cited(text, 0, len(text), source=text)]
    kinds, _ = markdown_page(to_markdown(text, citations, chunk_id="a"))
    assert not kinds & {
        "link_open", "image", "html_inline", "html_block", "heading_open", "bullet_list_open",
        "ordered_list_open", "blockquote_open", "table_open", "fence", "code_block",
        "code_inline", "hr", "em_open", "s_open",
    }  # fmt: skip


# Terminal.


def test_terminal_pieces_show_a_little_context_around_the_passage():
    text = f"{'a' * 100}HERE{'b' * 100}THERE{'c' * 100}"
    both = [cited(text, 100, 104), cited(text, 204, 209)]
    found = to_terminal(text, both, chunk_id="a", context=5, labels=False)
    assert found == [
        ("…aaaaa", False),
        ("HERE", True),
        ("bbbbb…bbbbb", False),
        ("THERE", True),
        ("ccccc…", False),
    ]
    assert to_terminal("short", [], chunk_id="a", context=9) == [("short", False)]
    assert to_terminal(text, [], chunk_id="a", context=5) == [("aaaaa…", False)]


def test_terminal_pieces_name_what_was_not_found():
    citations = [
        cited(CHUNK, 13, 20),
        unverified(CHUNK, "41\x1b[1m days", answer_end=21, claim=CHUNK[:21]),
    ]
    assert to_terminal(CHUNK, citations, chunk_id="a")[-1] == (
        f"\n[2] {NOT_FOUND}: 41[1m days",
        False,
    )
    assert to_terminal(CHUNK, citations) == [
        ("Refunds take ", False),
        ("14 days", True),
        ("[1]", False),
        (".", False),
        ("[2?]", False),
        (" Ask by mail.", False),
    ]


@given(texts, st.integers(0, 60), st.integers(0, 60))
def test_terminal_pieces_hold_no_control_characters(text, at, to):
    citations = [cited(text, at, to), unverified(text, text)]
    for chunk_id in (None, "a"):
        for part, _ in to_terminal(text, citations, chunk_id=chunk_id):
            assert plain_text(part) == part
            assert not [c for c in part if unicodedata.category(c) == "Cc" and c != "\n"]
            assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\u200e\u200f\ufeff]", part)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क्\u200dष", "क्\u200dष"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("❤\ufe0f", "❤\ufe0f"),
        ("ad\u200cmin a\u200d", "admin a"),
        ("می\u200c\u200cخ", "میخ"),
        ("\u0600١٢", "\u0600١٢"),
        ("a\tb\r\nc\rd\u2028e\x85f", "a b\nc\nd\ne\nf"),
        ("\x1b]0;x\x07\x9b1m", "]0;x1m"),
        ("a\u202egpj.exe", "agpj.exe"),
        ("\ue000\U000e0041\ud800\ufdd0x", "x"),
    ],
)
def test_plain_text_keeps_what_scripts_need(text, shown):
    assert plain_text(text) == shown


@given(texts)
def test_plain_text_of_plain_text_is_itself(text):
    assert plain_text(plain_text(text)) == plain_text(text)


def test_time_is_linear_in_the_text():
    blank = " \n" * 20_000
    text = f"{HOSTILE[0] * 500}{blank}x{blank}y"
    start = time.process_time()
    for render in (to_markdown, to_html, to_terminal):
        render(text, [cited(text, 5, len(text))], chunk_id="a")
    assert time.process_time() - start < 2
