"""Encodings, told from the bytes of real files."""

import codecs

import pytest

from langchain_feedback.errors import UnreadableFileError
from langchain_feedback.local import read_file

GERMAN = "Die Kündigung ist jederzeit möglich. Die Gebühr beträgt 5 €."
JAPANESE = "返金は五営業日以内に行われます。解約はいつでもできます。お問い合わせください。"
RUSSIAN = "Возврат средств занимает пять рабочих дней после одобрения заявки."


def text_of(tmp_path, data, name="a.txt"):
    path = tmp_path / name
    path.write_bytes(data)
    return "".join(section.page_content for section in read_file(path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252"])
def test_german(tmp_path, encoding):
    assert text_of(tmp_path, GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_byte_order_marks_decide_and_are_dropped(tmp_path, mark, encoding):
    assert text_of(tmp_path, mark + GERMAN.encode(encoding)) == GERMAN


@pytest.mark.parametrize("word", ["Café", "Préférence", "Größe", "“yes” – 5 €", "piñata"])
def test_a_few_western_words_are_not_taken_for_something_exotic(tmp_path, word):
    assert text_of(tmp_path, word.encode("cp1252")) == word


@pytest.mark.parametrize(
    ("text", "encoding"),
    [(JAPANESE, "shift_jis"), (RUSSIAN, "cp1251"), (RUSSIAN, "koi8-r"), (GERMAN * 20, "cp1252")],
)
def test_other_encodings_are_guessed(tmp_path, text, encoding):
    assert text_of(tmp_path, text.encode(encoding)) == text


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_become_plain(tmp_path, ending):
    assert text_of(tmp_path, f"a{ending}b".encode()) == "a\nb"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04\x00\x00", "NUL bytes"),
        (GERMAN.encode("utf-16-le"), "NUL bytes"),
        (codecs.BOM_UTF16_LE + b"\x00\xd8\x41", "starts as utf-16"),
        (bytes(range(1, 256)) * 8, "not text in any known encoding"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_binary_content_is_refused_with_the_file_and_what_to_do(tmp_path, data, reason, name):
    with pytest.raises(UnreadableFileError, match=f"{name}: .*{reason}.*[Ss]ave it"):
        text_of(tmp_path, data, name)


class TestHtml:
    def test_utf8_wins_over_a_declaration_left_from_a_template(self, tmp_path):
        page = f'<meta charset="iso-8859-1"><p>{GERMAN}</p>'
        assert text_of(tmp_path, page.encode(), "a.html") == GERMAN

    @pytest.mark.parametrize("declared", ["iso-8859-1", "windows-1252", "latin-1"])
    def test_latin_1_is_read_as_browsers_do(self, tmp_path, declared):
        page = f'<meta charset="{declared}"><p>{GERMAN}</p>'
        assert text_of(tmp_path, page.encode("cp1252"), "a.html") == GERMAN

    def test_seven_bit_japanese_needs_its_declaration(self, tmp_path):
        page = f'<meta charset="iso-2022-jp"><p>{JAPANESE}</p>'
        assert text_of(tmp_path, page.encode("iso-2022-jp"), "a.html") == JAPANESE

    @pytest.mark.parametrize("declared", ["no-such-encoding", "ascii", "utf-8"])
    def test_a_wrong_declaration_is_passed_over(self, tmp_path, declared):
        page = f'<meta charset="{declared}"><p>Größe</p>'
        assert text_of(tmp_path, page.encode("cp1252"), "a.html") == "Größe"

    def test_a_byte_order_mark_decides(self, tmp_path):
        page = f'<meta charset="utf-8"><p>{GERMAN}</p>'
        assert text_of(tmp_path, page.encode("utf-16"), "a.html") == GERMAN
