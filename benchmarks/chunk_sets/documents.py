"""Other people's documents that lie on this machine: nothing was tuned on them.

Long descriptions and text files of the installed packages, licences apart, their docstrings, and
what lies in folders that are named: Markdown, reStructuredText, plain text, HTML, manual pages.
"""

import ast
import gzip
import html
import itertools
import random
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from chunk_sets.good import packed

__all__ = ["chunked", "docstrings", "package_documents", "sampled", "script"]

SUFFIXES = frozenset({".md", ".rst", ".txt", ".html"})
_LICENCE = re.compile(r"licen[cs]e|copying|notice|authors|copyright", re.IGNORECASE)
_LISTS = re.compile(r"top_level|entry_points|requires|record|sources|cmakelists", re.IGNORECASE)
_TESTS = frozenset({"test", "tests", "testing", "data", "models", "requirements"})
_MANUAL = re.compile(r"\.[1-8]\w*(?:\.gz)?\Z")
_DEFINED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_MODULES = 40
_LONG = 200
_SIZE = 800
_LARGEST = 400_000


def chunked(text: str) -> list[str]:
    """Cut between paragraphs, else between lines, into about 800 characters."""
    blocks: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text):
        blocks += packed(block.split("\n"), _SIZE, "\n") if len(block) > _SIZE else [block]
    return [chunk for chunk in packed(blocks, _SIZE) if chunk.strip()]


def script(text: str) -> str:
    """Name the script that most of a text's letters are of, such as `latin` or `cjk`."""
    names = Counter(
        unicodedata.name(letter, "none").split()[0].lower() for letter in text if letter.isalpha()
    )
    return names.most_common(1)[0][0] if names else "none"


def docstrings(site: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Give group, package and text of long docstrings: of each package, 40 modules by chance."""
    for package in _packages(site):
        files = [
            file
            for file in package.files or ()
            if file.suffix == ".py" and not _TESTS.intersection(file.parts)
        ]
        chance = random.Random(package.name)  # noqa: S311  no secret
        for file in chance.sample(files, min(_MODULES, len(files))):
            for text in _docstrings_of(_read(Path(str(package.locate_file(file))))):
                yield "docstrings", package.name, text


def _docstrings_of(source: str) -> Iterator[str]:
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        text = ast.get_docstring(node) if isinstance(node, _DEFINED) else None
        if text and len(text) >= _LONG:
            yield text


def _packages(site: str | None) -> list[Distribution]:
    found = distributions() if site is None else distributions(path=[site])
    return sorted(found, key=lambda each: each.name or "")


def package_documents(site: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Give group, name and text of what came with each package that is installed in a folder.

    Args:
        site: A folder of packages; None: those of this Python.
    """
    for package in _packages(site):
        described = package.metadata.get_payload() or package.metadata.get("Description") or ""
        if isinstance(described, str) and described.strip():
            yield "descriptions", package.name, described
        yield from _files(package)


def _files(package: Distribution) -> Iterator[tuple[str, str, str]]:
    for file in package.files or ():
        if file.suffix not in SUFFIXES - {".html"} or _LISTS.search(file.name):
            continue
        if _TESTS.intersection(file.parts):
            continue
        text = _read(Path(str(package.locate_file(file))))
        if text:
            group = "licences" if _LICENCE.search(str(file)) else "files"
            yield group, f"{package.name}/{file.name}", text


def sampled(place: Path, number: int) -> list[str]:
    """Return the texts of a file, or of a folder's documents, at most `number`, by chance."""
    if place.is_file():
        return list(filter(None, [_text(place)]))
    if not place.is_dir():
        return []
    paths = sorted(path for path in place.rglob("*") if path.is_file() and not path.is_symlink())
    random.Random(0).shuffle(paths)  # noqa: S311  no secret
    return list(itertools.islice(filter(None, map(_text, paths)), number))


def _text(path: Path) -> str:
    if path.suffix in SUFFIXES:
        return _without_tags(_read(path), path)
    return _without_roff(_read(path)) if _MANUAL.search(path.name) else ""


def _read(path: Path) -> str:
    try:
        if not path.exists() or path.stat().st_size > _LARGEST:
            return ""
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        return raw.decode("utf-8").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        # What is broken on purpose (test files in other encodings) is no document.
        return ""


def _without_tags(text: str, path: Path) -> str:
    if path.suffix != ".html":
        return text
    main = re.search(r"<main>(.*?)</main>", text, re.DOTALL)
    text = re.sub(r"(?s)<(script|style|head|nav)\b.*?</\1>", "", main[1] if main else text)
    text = re.sub(r"\n+", "\n", text)
    text = re.sub(r"</(?:p|h\d|li|pre|tr|div)>", "\n\n", text)
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def _without_roff(text: str) -> str:
    """Turn a manual page's source into text: requests go, escapes become characters."""
    lines = []
    for line in text.splitlines():
        if line.startswith(('.\\"', "'\\\"", ".TH", ".so", ".if", ".ie", ".el", ".de", ".ds")):
            continue
        if re.match(r"[.'](?:PP|P|LP|sp|TP|IP|SH|SS|HP)\b", line):
            lines.append("")
        if re.match(r"[.'][A-Za-z]{2}\b|[.'][A-Z]\b", line):
            line = re.sub(r"^[.'][A-Za-z]{1,2}\s*", "", line).replace('"', "")  # noqa: PLW2901
        lines.append(_unescaped(line))
    return "\n".join(lines)


def _accented(escape: re.Match[str]) -> str:
    sign = {
        "'": "\u0301",
        "`": "\u0300",
        "^": "\u0302",
        ":": "\u0308",
        "~": "\u0303",
        ",": "\u0327",
    }
    return unicodedata.normalize("NFC", escape[2] + sign[escape[1]])


def _unescaped(line: str) -> str:
    line = re.sub(r"\\f(?:\[[^\]]*\]|\(..|.)", "", line)
    line = re.sub(r"\\(?:s[+-]?\d|[&/,|^%:c])", "", line).replace("\\ ", " ")
    line = re.sub(r"\\(?:\[|\()(['`^:~,])([A-Za-z])\]?", _accented, line)
    for escape, character in {
        "\\-": "-",
        "\\(bu": "•",
        "\\e": "\\",
        "\\(aq": "'",
        "\\~": " ",
    }.items():
        line = line.replace(escape, character)
    line = re.sub(r"\\(?:\*?\((?:lq|rq|dq)|\*?\[[lr]q\])", '"', line)
    line = re.sub(r"\\\[u([0-9A-F]{4})\]", lambda match: chr(int(match[1], 16)), line)
    return re.sub(r"\\(?:\(..|\[[^\]]*\])", "'", line)
