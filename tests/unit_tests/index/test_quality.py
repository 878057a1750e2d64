"""The junk gate: what it takes out, what it leaves alone, and why it says so."""

import base64
import hashlib
import json
import pickle
import random
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.index.quality import (
    GATING,
    SCORING_VERSION,
    ChunkQuality,
    score_batch,
    score_chunk,
)
from tests.shared import HOSTILE, seconds, shared_rows

REFUNDS = {
    "en": "A refund takes 14 days. Ask for it by mail, and name the order. We confirm at once.",
    "de": "Eine Rückerstattung dauert 14 Tage. Bitten Sie per Brief darum. Wir bestätigen sofort.",
    "fr": "Le remboursement prend 14 jours. Écrivez-nous une lettre. Nous confirmons aussitôt.",
    "es": "La devolución tarda 14 días. Pídala por carta. La confirmaremos, ¿de acuerdo?",
    "vi": "Việc hoàn tiền mất 14 ngày. Hãy gửi thư cho chúng tôi. Chúng tôi sẽ xác nhận ngay.",
    "ru": "Возврат денег занимает 14 дней. Напишите нам письмо. Мы сразу его подтвердим.",
    "el": "Η επιστροφή χρημάτων διαρκεί 14 ημέρες. Γράψτε μας ένα γράμμα. Απαντάμε αμέσως.",
    "ar": "يستغرق رد المبلغ 14 يومًا. اكتب لنا رسالة. سنؤكد استلامها على الفور.",
    "he": "ההחזר הכספי אורך 14 ימים. כתבו לנו מכתב. אנו נאשר את קבלתו מיד.",
    "hi": "धनवापसी में 14 दिन लगते हैं। हमें एक पत्र लिखें। हम तुरंत पुष्टि करेंगे।",
    "ta": "பணம் திரும்பக் கிடைக்க 14 நாட்கள் ஆகும். எங்களுக்குக் கடிதம் எழுதுங்கள்.",
    "th": "การคืนเงินใช้เวลา 14 วัน โปรดเขียนจดหมายถึงเรา เราจะยืนยันทันที",
    "zh": "退款需要14天。请写信给我们。我们会立即确认。",
    "ja": "返金には14日かかります。手紙でお知らせください。すぐに確認いたします。",
    "ko": "환불에는 14일이 걸립니다. 편지로 알려 주십시오. 바로 확인해 드립니다.",
}
CODE = '''def refund(order, *, days=14):
    """Give the money back."""
    if order.paid and order.age <= days:
        ledger.append(-order.total)
        return Receipt(order.id, order.total)
    raise TooLate(order.id)
'''
TABLE = """| plan | price | seats |
| --- | ---: | ---: |
| basic | 9 € | 1 |
| team | 49 € | 10 |
| company | 399 € | 100 |
"""
LIST = "- Write to us\n- Name the order\n- Wait for 14 days\n- Look at your account"


def reasons(text, **hints):
    return score_chunk(text, **hints).reasons


# -- what passes


@pytest.mark.parametrize("language", REFUNDS)
def test_a_plain_answer_passes_in_every_script(language):
    found = score_chunk(REFUNDS[language])
    assert not found.gated
    assert found.kind == "prose"
    assert set(found.reasons) <= {"cut_end"}, "Thai marks no end of a sentence"
    assert found.density > 0.9


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (CODE, "code"),
        (f"Like this:\n\n```python\n{CODE}```", "code"),
        ("    $ pip install it\n    $ it --help\n", "code"),
        (TABLE, "table"),
        ("plan,price,seats\nbasic,9,1\nteam,49,10\ncompany,399,100", "table"),
        ("plan\tprice\tseats\nbasic\t9\t1\nteam\t49\t10", "table"),
        ("5.1 3.5 1.4 0.2\n4.9 3.0 1.4 0.2\n4.7 3.2 1.3 0.2", "table"),
        (
            "Field     Bytes   Meaning\nlength    4       size\nkind      1       what it is",
            "table",
        ),
        (LIST, "list"),
        ("1. Write to us.\n2. Name the order.\n3. Wait.", "list"),
        (REFUNDS["en"], "prose"),
        ("Either red, green, or blue, as you like.\nOr else none, nothing, or all.", "prose"),
    ],
)
def test_the_kind_is_told_by_the_lines(text, kind):
    found = score_chunk(text)
    assert found.kind == kind
    assert not found.gated


def test_the_handbook_passes():
    for row in shared_rows("handbook/handbook.jsonl"):
        text = row["text"] if "text" in row else row["page_content"]
        assert not score_chunk(text).gated, text[:80]


@pytest.mark.parametrize(
    "text",
    [
        "Office hours: weekdays",
        "Write to help@example.org",
        "Call 555 0100",
        "退款：十四天",
        "Is it free?",
        "See docs/refunds.md",
        "# Refunds\nThey are free.",
    ],
)
def test_a_short_text_that_says_something_passes(text):
    assert not score_chunk(text).gated


def test_one_accident_condemns_no_text():
    for accident in ("\x00", "\ufffd", "Ã¼", "\ue000"):
        assert not score_chunk(f"Fees {accident} are due in May.").gated


def test_one_line_of_boilerplate_condemns_no_text():
    page = "\n".join(
        [REFUNDS["en"], "Page 12", REFUNDS["en"][::-1].title(), "Home | Help | About"]
    )
    assert not score_chunk(page).gated


def test_badges_above_a_real_text_do_not_condemn_it():
    badge = "[![build](https://example.org/a/very/long/address.svg)](https://example.org/build)"
    assert not score_chunk(f"# Refunds\n\n{badge}\n{badge}\n\n{REFUNDS['en']}").gated


def test_one_whole_sentence_beside_links_is_worth_keeping():
    links = "\n".join(f"- [Chapter {number}](chapter-{number}.md)" for number in range(9))
    sentence = "This handbook says how refunds are asked for and when they are paid."
    assert "navigation" in reasons(links)
    assert "navigation" in reasons(f"See also:\n\n{links}")
    assert not score_chunk(f"{sentence}\n\n{links}").gated


def test_bullets_of_word_processors_are_no_garbage():
    listed = "\n".join(f"\uf0b7 {item}" for item in ("write", "wait", "look", "ask again"))
    assert "garbled" not in reasons(listed)


# -- what is gated, and why


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (base64.b64encode(random.Random(1).randbytes(400)).decode(), "garbled"),
        (hashlib.sha512(b"1").hexdigest() + "\n" + hashlib.sha512(b"2").hexdigest(), "garbled"),
        ("(cid:12)(cid:7)(cid:33) " * 20, "garbled"),
        ("%&/()=?|<>}{][~#'+*-_.:,; " * 10, "garbled"),
        ("\x01\x02\x03 and then some words of it", "garbled"),
        ("Tl1e ref|und t^kes f0urteen d@ys, a;nd w■e c!onf¦rm i~t at 0n°ce by ma§il.", "garbled"),
        ("t h i s r e f u n d t k s m n y d y s s", "garbled"),
        ("All rights reserved.\n" * 30, "repeated"),
        ("buy now " * 100, "repeated"),
        ("立即购买本店商品吧" * 60, "repeated"),
        ("Refunds ........ 3\nFees ........... 9\nHours .......... 12", "navigation"),
        ("Refunds 3\nFees 9\nHours 12\nPlans 12\nAccounts 17\nData 20", "navigation"),
        ("- [Refunds](#refunds)\n- [Fees](#fees)\n- [Hours](#hours)", "navigation"),
        ("Home | Products | Support | About us | Contact", "navigation"),
        ("https://example.org/1\nhttps://example.org/2", "navigation"),
        ("[1]: https://example.org/a\n[2]: https://example.org/b", "navigation"),
        ("Our refund policy", "no_statement"),
        ("## Rückerstattung", "no_statement"),
        ("退款政策", "no_statement"),
        ("", "no_statement"),
        (" \n\t ", "no_statement"),
    ],
)
def test_junk_is_gated_with_its_reason(text, reason):
    found = score_chunk(text)
    assert found.gated
    assert reason in found.reasons


@pytest.mark.parametrize(
    ("language", "written", "read"),
    [
        ("de", "utf-8", "latin-1"),
        ("fr", "utf-8", "cp1252"),
        ("ru", "utf-8", "cp1251"),
        ("ru", "cp1251", "latin-1"),
        ("el", "cp1253", "latin-1"),
        ("ja", "utf-8", "mac_roman"),
        ("ar", "utf-8", "cp437"),
        ("hi", "utf-8", "latin-1"),
    ],
)
def test_text_read_in_the_wrong_encoding_is_garbled(language, written, read):
    text = REFUNDS[language].encode(written, "ignore").decode(read, "replace")
    assert "garbled" in reasons(text)


@pytest.mark.parametrize(
    "text",
    [
        "« Abrégé », dit-il, « l’été à l’étranger », et « ÉTÉ » : c’est déjà réglé. « Voilà » !",
        "Różnica między „Śródmieście” a „Żoliborz” jest duża. Łódź też się zmienia.",
        "Различие РС и ЭВМ: «С Новым годом», № 5 — всё ещё «Сё».",
        "Ü®ber®all ™ — “Größe” ‘Ä’ … 5° und 3² sowie ½ und µ sind Zeichen.",
        "Ñandú, Ó», É”, Í’ and À… are letters before marks.",
    ],
)
def test_accents_beside_quotation_marks_are_not_misread(text):
    assert score_chunk(text).legibility > 0.8


def test_lines_of_code_may_come_again_and_lines_of_text_may_not():
    again = "    @property\n    def value(self):\n        return self._value\n"
    names = [again.replace("value", name) for name in ("left", "right", "upper", "lower", "depth")]
    assert not score_chunk("\n".join(names)).gated
    assert score_chunk("Our terms apply to all orders.\n" * 12).gated


# -- advice that gates nothing


def test_where_it_was_cut_is_told_by_looks():
    assert reasons("of the order. Ask again in May.") == ("cut_start",)
    assert reasons("Ask again in May 2027, and then when the") == ("cut_end",)
    assert not score_chunk("of the order. Ask again in May 2027, and then when the").gated


def test_where_it_was_cut_is_told_exactly_by_the_source():
    source = "Refunds take 14 days. iPhones take 20 days.\n\nAsk for\nit in May."
    whole = "iPhones take 20 days."
    at = source.index(whole)
    hints = {"before": source[:at], "after": source[at + len(whole) :]}
    assert reasons(whole) == ("cut_start",)
    assert reasons(whole, **hints) == ()
    assert score_chunk("ake 14 days.", before="Refunds t", after="").start == 0
    assert score_chunk("Ask for", before=source[:45], after="\nit in May.").end < 0.5
    assert score_chunk("Refunds take 14 days", before="", after="").sufficiency == 1
    assert reasons("退款需要14", before="", after="天。") == ("cut_end",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("See:\n\n```python\nimport refunds\nrefunds.give(order)\n", "broken_fence"),
        ("| basic | 9 |\n| team | 49 |\n| company | 399 |", "broken_table"),
        ("# 14 days", "heading_only"),
        ("One more word, and then a stop. " * 60 + " ".join(map(str, range(300))), "too_long"),
    ],
)
def test_the_surface_advises(text, reason):
    assert reason in reasons(text)


def test_a_cut_in_a_list_or_code_is_no_fault():
    assert reasons(LIST) == ()
    assert reasons(CODE) == ()
    assert reasons(TABLE) == ()


# -- figures for people


def test_one_fatal_fault_sinks_the_composite_and_the_four_dimensions_are_apart():
    good, bad = score_chunk(REFUNDS["en"]), score_chunk("All rights reserved.\n" * 30)
    assert good.composite == 1
    assert bad.composite < 0.2
    half = score_chunk("of the order. Ask again in May.")
    assert half.composite == pytest.approx(half.density**0.6 * half.sufficiency**0.4)
    assert half.density == 1


# -- a pure function of the text


def test_results_are_plain_and_carry_their_version():
    found = score_chunk(REFUNDS["en"])
    assert found.scoring_version == SCORING_VERSION
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301  our own bytes
    assert json.loads(json.dumps(found.checks)) == found.checks
    assert all(type(value) is float for value in found.checks.values())


def test_a_batch_is_its_chunks_in_any_process_and_from_an_array():
    texts = [*REFUNDS.values(), CODE, TABLE, "Contents"]
    one_by_one = [score_chunk(text) for text in texts]
    assert score_batch(texts) == one_by_one
    assert score_batch(np.array(texts)) == one_by_one
    with ProcessPoolExecutor(1) as pool:
        assert pool.submit(score_batch, texts).result() == one_by_one
    assert score_batch([]) == []


_ALPHABET = st.characters(codec="utf-16", exclude_categories=()) | st.sampled_from("\n |.-[]()`#,")


@given(st.text(_ALPHABET, max_size=300), st.none() | st.text(max_size=20))
def test_any_text_gets_checks_in_range_and_reasons_that_follow_from_them(text, before):
    found = score_chunk(text, before=before)
    assert isinstance(found, ChunkQuality)
    shown = [found.density, found.sufficiency, found.composite]
    assert all(0 <= value <= 1 for value in [*found.checks.values(), *shown])
    low = {reason for name, reason in GATING.items() if found.checks[name] < 0.5}
    assert low == set(GATING.values()) & set(found.reasons)
    assert found.gated == bool(low)
    assert found == score_chunk(text, before=before)


@given(st.text(st.characters(categories=["Cs"]), min_size=1, max_size=5))
def test_lone_surrogates_are_judged_too(text):
    assert 0 <= score_chunk(f"Some words. {text}").legibility <= 1


@given(st.sampled_from(sorted(REFUNDS)), st.sampled_from(["\n", "  ", "\r\n", "\u3000", "\n\n"]))
def test_white_space_around_a_text_changes_no_gate(language, space):
    text = REFUNDS[language]
    assert score_chunk(space + text + space).gated == score_chunk(text).gated


# -- time is linear in the length

_MEGABYTE = 1_000_000
_SLOW = HOSTILE | {
    "10,000 links": "[a](https://example.org/x) " * 10_000,
    "10,000 lines of links": "[a](https://example.org/x)\n" * 10_000,
    "10,000 addresses": "http://a " * 10_000,
    "one word of 1 MB": "a" * _MEGABYTE,
    "one line of 1 MB": "word " * (_MEGABYTE // 5),
    "1 MB without spaces": "退款" * (_MEGABYTE // 2),
    "1 MB of dots": "." * _MEGABYTE + "x",
    "1 MB of spaced dots": ". " * (_MEGABYTE // 2) + "x",
    "1 MB of spaces": "a" + " " * _MEGABYTE + "b",
    "1 MB of brackets": "[" * _MEGABYTE,
    "half links": "[a" * (_MEGABYTE // 2),
    "empty links": "](" * (_MEGABYTE // 2),
    "1 MB misread": "Ð°" * (_MEGABYTE // 2),
    "1 MB accented": "é" * _MEGABYTE,
    "1 MB of base64": "aB3/" * (_MEGABYTE // 4),
    "1 MB of hexadecimal digits": "0a1b" * (_MEGABYTE // 4),
    "1 MB of digits": "0" * _MEGABYTE,
    "1 MB of letters of digests": "a" * _MEGABYTE + "1",
    "1 MB of exponents": "x^" * (_MEGABYTE // 2),
    "1 MB of bullets": "■\n" * (_MEGABYTE // 4),
    "1 MB of degrees": "°C" * (_MEGABYTE // 2),
    "1 MB of pipes": "a|" * (_MEGABYTE // 2),
    "1 MB of tags": "<a" * (_MEGABYTE // 2),
}


@pytest.mark.parametrize("name", _SLOW)
def test_no_text_makes_a_pattern_backtrack(name):
    # Quadratic would be minutes here; a busy machine is given its time.
    assert seconds(lambda: score_chunk(_SLOW[name])) < 5


@pytest.mark.parametrize("name", ["10,000 links", "one word of 1 MB", "one line of 1 MB"])
def test_check1_links_and_long_lines_take_less_than_a_second(name):
    assert min(seconds(lambda: score_chunk(_SLOW[name])) for _ in range(3)) < 1
