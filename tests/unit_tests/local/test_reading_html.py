"""Sections of web pages: what is read, what is dropped, where lines end."""

import pytest

from langchain_feedback.local import read_file


@pytest.fixture
def sections(tmp_path):
    def read(markup):
        path = tmp_path / "a.html"
        path.write_text(markup, encoding="utf-8")
        return [(doc.metadata.get("heading"), doc.page_content) for doc in read_file(path)]

    return read


@pytest.fixture
def text(sections):
    return lambda markup: "\n".join(content for _, content in sections(markup))


def test_headings_cut_a_page_and_start_their_sections(sections):
    page = """<html><head><title>Ignored</title></head><body><p>Before.</p>
        <h1>Billing</h1><p>One.</p><h2>Refunds</h2><p>Two.</p><h1>Help</h1><p>Three.</p>"""
    assert sections(page) == [
        (None, "Before."),
        ("Billing", "Billing\nOne."),
        ("Billing > Refunds", "Refunds\nTwo."),
        ("Help", "Help\nThree."),
    ]


def test_the_title_is_the_top_heading_where_there_is_no_h1(sections):
    page = "<head><title>Plans &amp; prices</title></head><p>a</p><h2>Small</h2><p>b</p>"
    assert sections(page) == [
        ("Plans & prices", "Plans & prices\na"),
        ("Plans & prices > Small", "Small\nb"),
    ]


@pytest.mark.parametrize("h1", ["<h1></h1>", "<h1><img alt='x'></h1>", "<nav><h1>Site</h1></nav>"])
def test_an_h1_that_says_nothing_does_not_count(sections, h1):
    assert sections(f"<title>T</title>{h1}<p>a</p>")[0][0] == "T"


@pytest.mark.parametrize("tag", ["script", "style", "noscript", "template", "nav"])
def test_what_no_reader_sees_is_dropped(text, tag):
    assert text(f"<p>a</p><{tag}>gone <b>too</b></{tag}><!-- note --><p>b</p>") == "a\nb"


def test_dropped_parts_within_dropped_parts(text):
    assert text("<nav>x<script>y</script><nav>z</nav></nav><p>a</p>") == "a"


def test_the_head_is_dropped_even_if_it_is_never_closed(text):
    assert text("<head><meta name=x><title>T</title><body><h1>A</h1><p>b</p>") == "A\nb"


def test_doctype_cdata_and_processing_instructions_are_dropped(text):
    assert text("<!DOCTYPE html><?php echo 1 ?><p>a<![CDATA[x]]></p>") == "a"


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>a</p><p>b</p>", "a\nb"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<div>a<div>b</div>c</div>", "a\nb\nc"),
        ("<ul><li>a<li>b</ul>", "a\nb"),
        ("<dl><dt>a<dd>b</dl>", "a\nb"),
        ("<p>a<p>b", "a\nb"),
        ("a <b>bold</b>, <i>it</i>alic", "a bold, italic"),
        ("<p>two\n   lines\tof&nbsp;source</p>", "two lines of source"),
        ("<b>a</b> <i>b</i>", "a b"),
        ("5&nbsp;&lt;&nbsp;6 &amp; &#8364;", "5 < 6 & €"),
        ("<a href='x'>link</a> text", "link text"),
    ],
)
def test_lines_end_at_blocks_and_words_do_not(text, markup, expected):
    assert text(markup) == expected


def test_preformatted_text_keeps_its_lines_and_indentation(text):
    page = "<p>Run:</p><pre>def f():\n    return  1\n\nf()</pre><p>done   now</p>"
    assert text(page) == "Run:\ndef f():\n    return  1\n\nf()\ndone now"


class TestTables:
    def test_cells_are_joined_by_bars(self, text):
        page = """<table><caption>Prices</caption>
            <thead><tr><th>Plan</th><th>Price</th></tr></thead>
            <tbody><tr><td>Small</td> <td>5 <b>EUR</b></td></tr>
            <tr><td>Big</td><td></td><td>x</td></tr></tbody></table>"""
        assert text(page) == "Prices\nPlan | Price\nSmall | 5 EUR\nBig | | x"

    def test_unclosed_cells_and_rows(self, text):
        page = "<table><tr><th>a<th>b<tr><td>c<td>d</table><p>e"
        assert text(page) == "a | b\nc | d\ne"

    def test_blocks_in_a_cell_do_not_end_the_row(self, text):
        page = "<tr><td><p>a</p><p>b</p></td><td><ul><li>c<li>d</ul></td><td>e<br>f</td></tr>"
        assert text(page) == "a b | c d | e f"

    def test_thousands_of_unclosed_cells_take_no_longer_than_closed_ones(self, text):
        row = "<tr>" + "<td>a" * 10
        assert text("<table>" + row * 1000 + "</table>").count(" | ") == 9000

    def test_tables_that_lay_out_a_page_keep_their_lines(self, sections):
        page = """<table><tr><td><h2>Left</h2><p>a</p><p>b</p></td>
            <td><table><tr><td>1</td><td>2</td></tr></table></td><td>last</td></tr></table>"""
        assert sections(page) == [("Left", "Left\na\nb\n1 | 2\nlast")]


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("<h2>A <em>b</em><br>c</h2>", "A b c"),
        ('<h2>Refunds<a class="headerlink" href="#refunds">¶</a></h2>', "Refunds"),
        ("<h2>\n  Spaced\n  out\n</h2>", "Spaced out"),
        ("<h2>outer <h3>inner</h3></h2>", "outer inner"),
    ],
)
def test_titles_of_headings(sections, heading, title):
    assert sections(f"{heading}<p>x</p>")[0][0] == title


def test_an_empty_heading_keeps_the_trail_as_it_was(sections):
    assert sections("<h1>A</h1><p>a</p><h2> </h2><p>b</p>") == [("A", "A\na"), ("A", "b")]


def test_tags_nested_thousands_deep_are_read(text):
    assert text("<div>" * 3000 + "deep") == "deep"


def test_a_page_without_text_has_no_sections(sections):
    assert sections("<body><img src=x><script>1</script></body>") == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "markup",
    [
        "<?xml version='1.0' encoding='UTF-8'?>\n<html><p>a</p></html>",
        "http://a.example",
        "a.html",
    ],
)
def test_what_beautiful_soup_wonders_about_is_no_concern_of_the_reader(text, markup):
    assert text(markup).startswith(("a", "http"))
