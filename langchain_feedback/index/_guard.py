"""What turns a statement into another one: numbers, signs, negations, conditions.

Texts of the same wording say the same only if all of these are equal. Lists of words cover the
larger languages and miss what their grammar hides in endings; a name that differs, such as
"Paris" for "London", is no business of theirs.
"""

import re
import unicodedata
from itertools import zip_longest

__all__ = ["difference", "telling"]

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0003ffff"
)
# Accents, points and vowel signs, which Python takes for the end of a word.
_MARK = r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0df3"
_LETTER = rf"(?:[^\W_{_UNSPACED}]|[{_MARK}])"
# What is written as one character or two, inside a run without spaces.
_UNSPACED_NO = "ません|ない|なく|なし|ず|[不没沒无無未非勿别別莫否]|ไม่|ห้าม|อย่า|ບໍ່|មិន"
_PIECE = re.compile(
    rf"(?P<no>{_UNSPACED_NO})|(?P<unspaced>[{_UNSPACED}])"
    rf"|(?P<number>\d+(?:[.,:'٫٬]\d+)*{_LETTER}*)|(?P<word>{_LETTER}+(?:'{_LETTER}+)*)"
    r"|(?P<sign>[%‰°±×÷=≠≈≤≥<>€£¥$₹+]|(?<!\w)[-−–](?=\d))"
)
_KOREAN_NO = re.compile("[않못없]|아니")
_CONTRACTED_NO = re.compile(r"n't\Z|\An'")
# Two is written so where it counts things; Unicode does not list it as a number.
_NUMERIC = frozenset("两兩")

_NO = frozenset(
    unicodedata.normalize(
        "NFC",
        "no not never none nor neither without cannot nobody nothing nowhere hardly"
        " nicht kein keine keinen keinem keiner keines nie niemals ohne weder niemand nichts"
        " ne pas jamais sans aucun aucune ni rien sin nunca jamás ningún ninguna ninguno nada"
        " não sem nem nenhum nenhuma non senza mai né nessun nessuna nessuno"
        " niet geen nooit zonder inte ikke ej aldrig aldri utan uden uten ingen ei eikä nem sem"
        " bez nigdy nelze není değil yok hayır asla tidak bukan jangan tanpa không chẳng đừng"
        " не нет нельзя без никогда ни ні немає"
        " لا لم لن ليس ليست غير بدون לא אין אל בלי"
        " नहीं न मत बिना ना না নয় নেই 안",
    ).split()
)
_TURNING = frozenset(
    "always sometimes often rarely only except unless all every any some both either"
    " must may might can should shall optional required mandatory before after until since"
    " above below over under more less fewer least most minimum maximum min max"
    " enable enabled disable disabled allow allowed deny denied forbidden true false on off yes"
    " increase decrease first last".split()
)
_COUNTING = frozenset(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
    " hundred thousand million billion half once twice second third quarter".split()
)


def telling(text: str) -> tuple[str, ...]:
    """Return what turns a text into another one, in order, each with the word behind it.

    Numbers in any script with their units, signs, negations in the larger languages (not those
    that Turkish or Japanese verbs hide in an ending of their own), and English words that
    limit or count.

    Example:
        >>> telling("Refunds take 14 days and are never paid in cash.")
        ('14 days', 'never paid')
        >>> telling("退款不需要三天")
        ('不 需', '三 天')
    """
    folded = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    pieces = [(str(match.lastgroup), match.group()) for match in _PIECE.finditer(folded)]
    behind = [*(piece for _, piece in pieces[1:]), ""]
    return tuple(
        f"{piece} {after}".strip()
        for (kind, piece), after in zip(pieces, behind, strict=False)
        if _kind(kind, piece)
    )


def difference(one: str, other: str) -> str | None:
    """Say why two texts of the same wording may say different things; None if they may not.

    Returns:
        `numbers`, `negation` or `conditions`: the kind of the first that differs.

    Example:
        >>> difference("within 14 days", "within 41 days")
        'numbers'
        >>> difference("It is always on.", "It is never on.")
        'negation'
        >>> difference("Pay before Monday.", "Pay after Monday.")
        'conditions'
        >>> difference("Pay by card.", "Pay by  CARD!") is None
        True
    """
    mine, theirs = telling(one), telling(other)
    if mine == theirs:
        return None
    differ = next(pair for pair in zip_longest(mine, theirs, fillvalue="") if pair[0] != pair[1])
    kinds = {_kind_of_telling(item) for item in differ if item}
    return next(kind for kind in ("negation", "numbers", "conditions") if kind in kinds)


def _kind_of_telling(item: str) -> str:
    match = _PIECE.match(item)
    return (match and _kind(str(match.lastgroup), match.group())) or "conditions"


def _kind(group: str, piece: str) -> str | None:
    if group in ("number", "sign") or piece in _COUNTING or not _NUMERIC.isdisjoint(piece):
        return "numbers"
    if group == "no" or piece in _NO or _CONTRACTED_NO.search(piece) or _KOREAN_NO.search(piece):
        return "negation"
    if piece in _TURNING:
        return "conditions"
    return "numbers" if any(map(str.isnumeric, piece)) else None
