"""PDF files: pages with text, scans, locked and damaged files. The files are made here."""

import io

import pytest
from pypdf import PdfReader, PdfWriter

from langchain_feedback.errors import NoTextError, UnreadableFileError
from langchain_feedback.local import read_file, read_folder


def make_pdf(*pages):
    """Write a PDF by hand: a catalogue, a font, and a page with a stream for each text."""
    first = 4
    kids = " ".join(f"{first + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, text in enumerate(pages):
        lines = " T* ".join(f"({line}) Tj" for line in text.split("\n")) if text else ""
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET"
        page = "/Type /Page /Parent 2 0 R /MediaBox [0 0 612 792]"
        fonts = "/Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            f"<< {page} {fonts} /Contents {first + 2 * number + 1} 0 R >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    return _with_table(objects)


def _with_table(objects):
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n".encode("latin-1")
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return body + f"{end}startxref\n{len(body)}\n%%EOF\n".encode()


def encrypted(data, user, **options):
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(data)))
    writer.encrypt(user, "owner", **options)
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


@pytest.fixture
def pdf(tmp_path):
    def write(data):
        path = tmp_path / "a.pdf"
        path.write_bytes(data)
        return path

    return write


def test_each_page_with_text_is_a_section_with_its_number(pdf):
    path = pdf(make_pdf("Refunds take\nfive days.", "", "Cancel any time."))
    found = [(doc.metadata, doc.page_content.split()) for doc in read_file(path)]
    assert found == [
        ({"source": "a.pdf", "page": 1}, ["Refunds", "take", "five", "days."]),
        ({"source": "a.pdf", "page": 3}, ["Cancel", "any", "time."]),
    ]


def test_the_ending_may_be_in_capitals(tmp_path):
    (tmp_path / "A.PDF").write_bytes(make_pdf("x"))
    assert read_folder(tmp_path).sections[0].metadata == {"source": "A.PDF", "page": 1}


@pytest.mark.parametrize("pages", [("",), ("", " ", ""), ()])
def test_a_scan_is_told_to_need_ocr(pdf, pages):
    with pytest.raises(NoTextError, match=r"a\.pdf: none of its pages has text.*scanned.*OCR"):
        read_file(pdf(make_pdf(*pages)))


def test_a_scan_alone_in_a_folder_keeps_its_own_error(pdf):
    with pytest.raises(NoTextError):
        read_folder(pdf(make_pdf("")).parent)


def test_a_scan_beside_other_files_is_a_problem_that_can_be_skipped(pdf):
    folder = pdf(make_pdf("")).parent
    (folder / "b.txt").write_text("x")
    result = read_folder(folder, skip_errors=True)
    assert [type(problem) for problem in result.problems] == [NoTextError]
    assert [doc.metadata["source"] for doc in result.sections] == ["b.txt"]


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-256"])
def test_a_locked_file_asks_for_a_copy_without_password(pdf, algorithm):
    data = encrypted(make_pdf("secret"), "user", algorithm=algorithm)
    with pytest.raises(UnreadableFileError, match=r"a\.pdf: it is encrypted.*without a password"):
        read_file(pdf(data))


def test_a_file_that_only_its_owner_may_change_is_read(pdf):
    data = encrypted(make_pdf("open"), "", algorithm="RC4-128")
    assert read_file(pdf(data))[0].page_content.strip() == "open"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no pdf",
        b"%PDF-1.4\n",
        make_pdf("x" * 99)[:60],
        b"%PDF-1.7\n" + bytes(range(256)) * 9,
    ],
)
def test_a_damaged_file_is_named(pdf, data):
    with pytest.raises(UnreadableFileError, match=r"a\.pdf: (it looks damaged|none of its)"):
        read_file(pdf(data))
