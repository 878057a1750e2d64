"""How a denial begins, and which questions deny nothing, in some languages.

Everything stands here as `folded` leaves it: lower case, without accents and curly apostrophes.
"""

import re
import unicodedata

__all__ = ["MONTHS", "asks_about", "denies", "folded"]

_ALONE = (
    # A "no" needs a comma or the end behind it: Spanish "no puedo entrar" denies nothing.
    "no nope wrong incorrect false nein falsch unsinn quatsch non faux falso incorrecto nao errado"
    " incorreto sbagliato nee fout onjuist нет неверно неправда 不 不是 不对 不對 错 いや 違う"
    " ちがう 아니"
).split()
_PHRASES = (
    "no that", "no it", "no i", "no you", "no this", "that's wrong", "that is wrong",
    "that's not right", "that is not right", "that's not true", "that is not true",
    "that's not correct", "that is not correct", "that isn't", "that's incorrect",
    "that is incorrect", "that's false", "that is false", "that can't be right",
    "that's not what", "that is not what", "this is wrong", "this is not right",
    "this is not correct", "this is incorrect", "it's wrong", "your answer is wrong", "not true",
    "not correct", "wrong answer", "you're wrong", "you are wrong", "you are mistaken",
    "are you sure",
    "nein das", "nein es", "nein ich", "das stimmt nicht", "das stimmt so nicht", "stimmt nicht",
    "stimmt so nicht", "das ist falsch", "das ist nicht richtig", "das ist nicht korrekt",
    "das ist nicht wahr", "das ist unsinn", "das kann nicht stimmen", "bist du sicher",
    "sind sie sicher",
    "non ce", "non c'est", "c'est faux", "c'est incorrect", "c'est inexact", "ce n'est pas vrai",
    "ce n'est pas correct", "ce n'est pas exact", "ce n'est pas ca", "ce n'est pas ce que",
    "c'est pas vrai", "c'est pas ca", "pas vrai", "vous vous trompez", "tu te trompes",
    "etes-vous sur", "tu es sur", "vous etes sur",
    "no eso", "eso no es", "eso es falso", "eso es incorrecto", "eso esta mal", "no es correcto",
    "no es cierto", "no es verdad", "es incorrecto", "esta mal", "te equivocas", "se equivoca",
    "estas seguro", "esta seguro",
    "no non", "non e vero", "non e corretto", "non e giusto", "non e cosi", "e sbagliato",
    "questo non e", "questo e sbagliato", "ti sbagli", "si sbaglia", "sei sicuro", "e sicuro",
    "nao isso", "isso nao e", "isso nao esta", "isso esta errado", "isso e falso",
    "nao e verdade", "nao e isso", "nao esta certo", "nao esta correto", "esta errado",
    "voce esta errado", "tem certeza",
    "nee dat", "nee het", "dat klopt niet", "klopt niet", "dat is fout", "dat is niet waar",
    "dat is niet juist", "dat is niet correct", "dat is onjuist", "niet waar",
    "je hebt het mis", "weet je het zeker", "weet u het zeker",
    "это не так", "это неправда", "это неверно", "вы ошиба", "вы уверены",
)  # fmt: skip
# Scripts without spaces: no word ends behind these.
_UNSPACED = """不正确 不正確 错了 錯了 你错 你錯 这不对 這不對 这是错的 這是錯的 说错了 搞错了
不是这样 不是這樣 不是的 不对吧 并非如此 いいえ 違います ちがいます それは違 それは間違
間違っています 間違いです 正しくない 아니요 아니오 아닙니다 틀렸 그게 아니""".split()
_POLITE = (
    "thank", "thanks", "that's all", "that is all", "nothing", "danke", "vielen dank",
    "das war alles", "merci", "gracias", "grazie", "obrigad", "dank", "bedankt", "спасибо", "谢谢",
    "謝謝", "ありがとう", "大丈夫", "감사",
)  # fmt: skip
# Who asks does not claim: "What happens after 30 days?"
_ASKING = """and what if how who whom whose which when where why can could may might do does should
would am will what's about
und was wie wer wen wem wo wann warum wieso welche welcher welches kann konnte darf muss soll gibt
et que quoi quel quelle quels quelles quand comment pourquoi qui puis-je est-ce dois-je peut-on
y cuando cuanto cuanta cuantos cual cuales donde quien como por puedo puede hay debo
e che cosa quando quanto quanta quale quali dove chi come perche posso devo
quem onde porque qual quais
en wat hoe wie waar wanneer waarom welke kan mag moet""".split()

_MONTHS = (
    "january januar janvier enero gennaio janeiro januari jan",
    "february februar fevrier febrero febbraio fevereiro februari feb",
    "march marz mars marzo marco maart mar",
    "april avril abril aprile apr",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho jun",
    "july juli juillet julio luglio julho jul",
    "august aout agosto augustus aug",
    "september septembre septiembre settembre setembro sept sep",
    "october oktober octobre octubre ottobre outubro oct okt",
    "november novembre noviembre novembro nov",
    "december dezember decembre diciembre dicembre dezembro dec dez",
)
MONTHS = {name: at for at, names in enumerate(_MONTHS, start=1) for name in names.split()}
"""The number of each month, by its name."""

_STOPPED = r"\s*(?:[,;:!?…、，。！？；：]|\.(?!\s*\d)|\s[-–—]|[–—]|\Z|\n)"


def _any(words: list[str] | tuple[str, ...]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_BARE = re.compile(rf"(?:{_any(_ALONE)})[的吧啊呀哦]?{_STOPPED}")
_PHRASE = re.compile(rf"(?:{_any(_PHRASES)})(?:\b|(?<=вы ошиба))|(?:{_any(_UNSPACED)})")
_LEADS = re.compile(r"[\W_]*")
_POLITELY = re.compile(rf"[\W_]*(?:{_any(_POLITE)})")
_ASKS = re.compile(rf"(?:{_any(_ASKING)})(?![\w'-])")


def folded(text: str) -> str:
    """Return a text in lower case, without accents, with straight apostrophes.

    Example:
        >>> folded("Ce n’est pas ÇA")
        "ce n'est pas ca"
    """
    bare = unicodedata.normalize("NFKD", text.replace("’", "'").casefold())
    # Japanese and Korean letters fall apart too, and are put together again.
    return unicodedata.normalize("NFC", re.sub("[\u0300-\u036f]", "", bare))


def denies(text: str, *, asked_back: bool = False) -> bool:
    """Say whether a text opens with a denial of what was said before.

    Args:
        text: What somebody wrote next.
        asked_back: Whether the answer before it closed with a question: then a bare "no"
            answers that.

    Example:
        >>> denies("No, that's the old price"), denies("Nein, das stimmt nicht.")
        (True, True)
        >>> denies("No puedo entrar"), denies("No, thanks!"), denies("No. 5 is missing")
        (False, False, False)
    """
    text = folded(text)
    start = _LEADS.match(text).end()  # type: ignore[union-attr]  # it matches anything
    if _PHRASE.match(text, start):
        return True
    bare = None if asked_back else _BARE.match(text, start)
    return bare is not None and not _POLITELY.match(text, bare.end())


def asks_about(text: str) -> bool:
    """Say whether a text opens as a question about another case does.

    Example:
        >>> asks_about("What if it is 30 days?"), asks_about("It is 30 days")
        (True, False)
    """
    text = folded(text)
    return _ASKS.match(text, _LEADS.match(text).end()) is not None  # type: ignore[union-attr]
