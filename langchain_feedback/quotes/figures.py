"""The numbers and the names of a statement, in a form that can be compared."""

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["missing_figures", "missing_names"]

_NUMBER = re.compile(r"\d+(?:[.,'’]\d+)*")
_NO_BREAK = re.compile(r"(?<=\d)[\u00a0\u202f](?=\d{3}(?!\d))")
# "1. " and "2) " open list items, "[3]" points to a source: neither says how many.
_MARKS = re.compile(r"(?m)^[ \t]*\d{1,2}[.)](?=\s)|\[\d{1,3}\]")
_NAME = re.compile(r"(?<![.!?:\"“]\s)(?<!^)\b[^\W\d_a-z]\w*(?:[-'’]\w+)*")

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
fifteen sixteen seventeen eighteen nineteen""".split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_SURELY_A_NUMBER = 13
_SPELLED = {word: value for value, word in enumerate(_SMALL)}
_SPELLED |= {word: 10 * value for value, word in enumerate(_TENS, 2)}
_SPELLED |= {
    f"{ten}-{one}": 10 * i + j
    for i, ten in enumerate(_TENS, 2)
    for j, one in enumerate(_SMALL[1:10], 1)
}


def missing_figures(
    statement: str, sources: Iterable[str], computed: Iterable[str] = ()
) -> list[str]:
    """Return the numbers of a statement that stand in none of its sources.

    Digits are compared by value as they are written: 1,500 is 1500, and 10 % has the
    number of "10 percent". A source may spell a number below 100 in English words, and
    so may the statement from thirteen up. List numbers and reference marks do not count.

    Args:
        statement: What is said.
        sources: What it must rest on.
        computed: Values that are worked out from the sources, and so stand in none.

    Example:
        >>> missing_figures("Within 41 days, for 1,500 users.", ["14 days", "1500 users"])
        ['41']
        >>> missing_figures("30 days", ["kept for thirty days"])
        []
    """
    known = {figure for source in sources for figure in _figures(source, spelled=True)}
    known |= {figure for value in computed for figure in _figures(value)}
    said = _NUMBER.findall(_MARKS.sub(" ", _plain(statement)))
    missing = [number for number in said if not _readings(number) & known]
    missing += [word for word in _spelled(statement) if str(_SPELLED[word]) not in known]
    return list(dict.fromkeys(missing))


def missing_names(statement: str, sources: Iterable[str]) -> list[str]:
    """Return the capitalized words inside a statement's sentences that no source holds.

    A hint for scripts with capitals, and no proof: German writes every noun so.

    Example:
        >>> missing_names("Support by Acme is free.", ["Support is free."])
        ['Acme']
    """
    known = {word.casefold() for source in sources for word in re.findall(r"\w+", _plain(source))}
    found = (match.group() for match in _NAME.finditer(_plain(statement)))
    return list(
        dict.fromkeys(
            name
            for name in found
            if not {word.casefold() for word in re.findall(r"\w+", name)} <= known
        )
    )


def _spelled(statement: str) -> list[str]:
    """Return the spelled numbers that count: "two" may only announce what follows."""
    words = re.findall(r"[a-z]+(?:-[a-z]+)?", _plain(statement).casefold())
    return [word for word in words if _SPELLED.get(word, 0) >= _SURELY_A_NUMBER]


def _figures(text: str, *, spelled: bool = False) -> set[str]:
    plain = _plain(text)
    figures = {reading for number in _NUMBER.findall(plain) for reading in _readings(number)}
    if spelled:
        words = re.findall(r"[a-z]+(?:-[a-z]+)?", plain.casefold())
        figures |= {str(_SPELLED[word]) for word in words if word in _SPELLED}
    return figures


def _readings(number: str) -> set[str]:
    """Return what a number may mean: "1,500" is 1500, and in other countries 1.5."""
    parts = re.split(r"[.,'’]", number)
    separators = set(re.findall(r"[.,'’]", number))
    readings = set()
    if len(parts) == 1 or (len(separators) == 1 and all(len(part) == 3 for part in parts[1:])):  # noqa: PLR2004
        readings.add(_stripped("".join(parts)))
    if len(parts) > 1 and len(parts[-1]) != 3 and number[-len(parts[-1]) - 1] in ".,":  # noqa: PLR2004
        readings.add(_stripped(f"{''.join(parts[:-1])}.{parts[-1]}"))
    # A version or a date is what it is.
    return readings or {number}


def _stripped(number: str) -> str:
    whole, point, fraction = number.partition(".")
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (point + fraction if fraction else "")


def _plain(text: str) -> str:
    # Such a space stays apart from others: "1 500" is one number with it.
    text = _NO_BREAK.sub("'", text)
    return unicodedata.normalize("NFKC", text.replace("²", " ² ").replace("³", " ³ "))
