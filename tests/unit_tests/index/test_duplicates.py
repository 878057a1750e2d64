"""Duplicates: exact ones collapse, near ones are suggested, and what differs is never the same."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.index import sketches
from langchain_feedback.index.duplicates import (
    Chunk,
    Duplicate,
    exact_duplicates,
    first_seen,
    folded,
    folded_hash,
    near_duplicates,
)
from langchain_feedback.index.sketches import (
    PERMUTATIONS,
    SKETCH_SCHEME,
    difference,
    jaccard,
    shingles,
    sketch,
    telling,
)
from langchain_feedback.words import tokens

PAGE = (
    "The warranty of a pump covers its motor and its housing from the day of delivery. Whoever"
    " finds a fault writes to the workshop with the serial number of the pump and a photograph"
    " of the plate. The workshop answers with a label for the parcel. A pump that was opened by"
    " somebody else loses its warranty, and so does a pump that ran dry. The workshop keeps"
    " parcels in a dry room and returns them with a report that names the fault and its cause."
)

SECOND_PAGE = (
    "Spare parts come from the same workshop. Name the type of the pump, the part and its"
    " letter in the drawing, and where to send it. Seals and gaskets are in stock; housings are"
    " cast on request."
)


def chunks_of(*texts, **kwargs):
    return [Chunk(str(at), text, **kwargs) for at, text in enumerate(texts)]


def pairs_of(found):
    return [(one.id, one.of) for one in found]


needs_datasketch = pytest.mark.usefixtures("_datasketch")


@pytest.fixture
def _datasketch():
    pytest.importorskip("datasketch", reason="the extra `care` is missing")


# -- exact


def test_a_second_copy_is_a_duplicate_of_the_first_seen():
    found = exact_duplicates(chunks_of("a b", "c", "A  b", "a\nB", "c d"))
    assert found == [Duplicate("2", "0", "exact", 1.0), Duplicate("3", "0", "exact", 1.0)]
    assert [chunk.id for chunk in first_seen(chunks_of("a b", "c", "A  b", "a\nB", "c d"))] == [
        "0",
        "1",
        "4",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("10⁵ units", "105 units"),
        ("if a:\n    b\nc", "if a:\n    b\n    c"),
        ("- a\n- b\n  - c", "- a\n- b\n- c"),
        ("co-op", "coop"),
        ("1.5", "15"),
        ("résumé", "resume"),
        ("-5 degrees", "5 degrees"),
    ],
)
def test_what_says_something_else_is_no_copy(one, other):
    assert folded(one) != folded(other)
    assert exact_duplicates(chunks_of(one, other)) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Résumé", "re\u0301sume\u0301"),
        ("Straße", "STRASSE"),
        ("a\u00a0b\u3000c", "a b c"),
        ("one\r\ntwo", "one two"),
        ("if a:\n    b\n\n", "if a:\n    b  "),
        ("ὈΔΥΣΣΕΎΣ", "ὀδυσσεύς"),
    ],
)
def test_case_spacing_and_the_form_of_accents_say_nothing(one, other):
    assert folded(one) == folded(other)
    assert folded_hash(one, "a") == folded_hash(other, "a") != folded_hash(other, "b")


def test_no_scope_and_text_imitate_another_pair():
    assert folded_hash("b", "a") != folded_hash("ab", "") != folded_hash("", "ab")
    assert folded_hash("1:ab") != folded_hash("b", "a")


@given(st.text())
@example("ΐ \u0390\u0345")
@example("a\n  b\n\u00a0 c")
def test_folding_twice_is_folding_once(text):
    assert folded(folded(text)) == folded(text)


@given(st.lists(st.tuples(st.sampled_from(["a", "A ", "b", " a b", ""]), st.sampled_from("xy"))))
def test_collapsing_leaves_each_text_of_a_scope_once_and_the_earliest(rows):
    chunks = [Chunk(str(at), text, scope=scope) for at, (text, scope) in enumerate(rows)]
    kept = first_seen(chunks)
    keys = [folded_hash(chunk.text, chunk.scope) for chunk in chunks]
    assert [keys[int(chunk.id)] for chunk in kept] == list(dict.fromkeys(keys))
    assert [int(chunk.id) for chunk in kept] == sorted(keys.index(key) for key in set(keys))
    for duplicate in exact_duplicates(chunks):
        assert int(duplicate.of) < int(duplicate.id)
        assert chunks[int(duplicate.of)] in kept
    assert exact_duplicates(kept) == []


def test_lone_surrogates_are_compared_too():
    assert pairs_of(exact_duplicates(chunks_of("a \ud800", "A \ud800", "a \ud801"))) == [
        ("1", "0")
    ]
    assert len(shingles("a \ud800 b c d \ud8ab")) > 0


@pytest.mark.parametrize("ways", [exact_duplicates, first_seen, near_duplicates])
def test_an_id_that_comes_twice_is_an_error(ways):
    with pytest.raises(ValueError, match="'1' comes twice"):
        ways([Chunk("1", "a"), Chunk("1", "b")])


# -- near


@needs_datasketch
def test_one_changed_word_is_a_suggestion_with_its_similarity():
    changed = PAGE.replace("photograph", "picture")
    (found,) = near_duplicates(chunks_of(PAGE, "Something else altogether.", changed))
    assert (found.id, found.of, found.kind) == ("2", "0", "near")
    assert found.similarity == jaccard(shingles(PAGE), shingles(changed))
    assert 0.9 <= found.similarity < 1


@needs_datasketch
def test_punctuation_alone_makes_a_near_duplicate_and_an_exact_one_is_left_out():
    found = near_duplicates(chunks_of(PAGE, PAGE.replace(".", ";"), PAGE.upper()))
    assert [(one.id, one.of, one.similarity) for one in found] == [("1", "0", 1.0)]


TRAPS = [
    ("{} Refunds take 14 days.", "{} Refunds take 41 days.", "numbers"),
    ("{} Refunds take 14 days.", "{} Refunds take 14 hours.", "numbers"),
    ("{} Refunds take 14 days, replies 41.", "{} Refunds take 41 days, replies 14.", "numbers"),
    ("{} Refunds take fourteen days.", "{} Refunds take forty days.", "numbers"),
    ("{} The fee is 5 %.", "{} The fee is 5 €.", "numbers"),
    ("{} Keep it at -5 degrees.", "{} Keep it at 5 degrees.", "numbers"),
    ("{} It needs >5 bar.", "{} It needs <5 bar.", "numbers"),
    ("{} About 10⁵ parts.", "{} About 105 parts.", "numbers"),
    ("{} The port is 8080.", "{} The port is 8081.", "numbers"),
    ("{} It took ½ day.", "{} It took ¼ day.", "numbers"),
    ("{} Valves are always open.", "{} Valves are never open.", "negation"),
    ("{} Valves are open.", "{} Valves are not open.", "negation"),
    ("{} Valves aren’t open.", "{} Valves are open.", "negation"),
    ("{} Do not open it, close it.", "{} Do open it, not close it.", "negation"),
    ("{} Always rinse it.", "{} Sometimes rinse it.", "conditions"),
    ("{} Pay before delivery.", "{} Pay after delivery.", "conditions"),
    ("{} Logging is enabled.", "{} Logging is disabled.", "conditions"),
    ("{} You must rinse it.", "{} You may rinse it.", "conditions"),
]


@needs_datasketch
@pytest.mark.parametrize(("one", "other", "why"), TRAPS)
def test_check3_what_turns_a_statement_is_never_called_a_duplicate(one, other, why):
    one, other = (text.format(f"{PAGE} {SECOND_PAGE}") for text in (one, other))
    assert jaccard(shingles(one), shingles(other)) >= 0.9
    assert difference(one, other) == difference(other, one) == why
    assert near_duplicates(chunks_of(one, other), threshold=0.8) == []
    assert exact_duplicates(chunks_of(one, other)) == []


@needs_datasketch
def test_check3_two_scopes_are_never_duplicates():
    chunks = [Chunk(scope, PAGE, scope=scope) for scope in ("", "a", "b")]
    near = [Chunk(f"near {scope}", PAGE + " Now.", scope=scope) for scope in ("a", "b")]
    assert exact_duplicates(chunks + near) == []
    assert pairs_of(near_duplicates(chunks + near)) == [("near a", "a"), ("near b", "b")]


@needs_datasketch
def test_check3_a_chain_of_small_changes_is_not_merged():
    # Every text differs in one word from the one before.
    texts, words = [PAGE], PAGE.split()
    for step in range(5):
        words[15 * step + 5] = f"changed{'abcde'[step]}"
        texts.append(" ".join(words))
    near = [jaccard(shingles(a), shingles(b)) for a, b in pairwise(texts)]
    assert min(near) >= 0.9
    assert jaccard(shingles(texts[0]), shingles(texts[-1])) < 0.8
    found = near_duplicates(chunks_of(*texts))
    duplicates = {one.id for one in found}
    assert 0 < len(duplicates) < 5
    for one in found:
        assert one.of not in duplicates
        assert one.similarity >= 0.9
        shared = jaccard(shingles(texts[int(one.id)]), shingles(texts[int(one.of)]))
        assert one.similarity == shared


UNSPACED = {
    "zh": (
        (
            "退款将在申请批准之后的工作日内退回原付款账户。客户需要提供订单编号和收据照片。"
            "如果商品在运输途中损坏请立即联系客服并保留包装材料以便检查。我们的团队会尽快回复您的邮件。"
        ),
        ("退款将在", "退款必在"),
        ("客户需要", "客户不需要"),
    ),
    "ja": (
        (
            "返金は申請が承認された後に元の支払い口座へ戻されます。お客様は注文番号と領収書の写真を"
            "用意してください。商品が輸送中に破損した場合はすぐに窓口へ連絡し、梱包材を保管してください。"
        ),
        ("窓口へ連絡", "窓口に連絡"),
        ("戻されます", "戻されません"),
    ),
    "th": (
        (
            "การคืนเงินจะส่งกลับไปยังบัญชีเดิมหลังจากคำขอได้รับการอนุมัติ ลูกค้าต้องส่งหมายเลขคำสั่งซื้อและรูปถ่ายใบเสร็จ"
            "หากสินค้าเสียหายระหว่างขนส่งกรุณาติดต่อฝ่ายบริการทันทีและเก็บบรรจุภัณฑ์ไว้เพื่อตรวจสอบ"
        ),
        ("กรุณาติดต่อ", "โปรดติดต่อ"),
        ("ลูกค้าต้องส่ง", "ลูกค้าไม่ต้องส่ง"),
    ),
}


@needs_datasketch
@pytest.mark.parametrize("language", UNSPACED)
def test_languages_without_spaces_are_compared_by_their_characters(language):
    text, (old, new), (said, denied) = UNSPACED[language]
    changed, turned = text.replace(old, new), text.replace(said, denied)
    assert text not in (changed, turned)
    assert len(shingles(text)) > 60
    assert pairs_of(near_duplicates(chunks_of(text, changed), threshold=0.8)) == [("1", "0")]
    assert difference(text, turned) == "negation"
    assert near_duplicates(chunks_of(text, turned), threshold=0.8) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Das gilt für alle.", "Das gilt nicht für alle."),
        ("Le robinet est ouvert.", "Le robinet n’est ouvert."),
        ("La válvula está abierta.", "La válvula no está abierta."),
        ("A válvula está aberta.", "A válvula não está aberta."),
        ("Клапан открыт.", "Клапан не открыт."),
        ("الصمام مفتوح.", "الصمام ليس مفتوح."),
        ("वाल्व खुला है।", "वाल्व खुला नहीं है।"),
        ("ভালভ খোলা।", "ভালভ খোলা নয়।"),
        ("밸브를 엽니다.", "밸브를 열지 않습니다."),
        ("Vana açık.", "Vana açık değil."),
        ("Van mở.", "Van không mở."),
        ("保修三年。", "保修两年。"),
    ],
)
def test_negations_and_numbers_of_other_languages_are_seen(one, other):
    assert difference(one, other) == ("numbers" if "保" in one else "negation")


@needs_datasketch
def test_texts_without_words_or_with_few_are_not_lumped_together():
    texts = ["", "---", "***", "🙂", "pump", "Pump.", "a pump", "the pump"]
    assert pairs_of(exact_duplicates(chunks_of(*texts))) == []
    assert pairs_of(near_duplicates(chunks_of(*texts))) == [("5", "4")]


@needs_datasketch
@pytest.mark.parametrize("threshold", [0.79, 1.01, float("nan")])
def test_a_threshold_that_sketches_cannot_serve_is_an_error(threshold):
    with pytest.raises(ValueError, match="threshold"):
        near_duplicates([], threshold=threshold)


@needs_datasketch
def test_a_template_with_a_thousand_numbers_has_no_duplicates_and_takes_no_square_of_time(
    monkeypatch,
):
    calls = []
    monkeypatch.setattr(
        "langchain_feedback.index.duplicates.jaccard", lambda *pair: calls.append(pair) or 1.0
    )
    texts = [f"{PAGE} The order number is {number}." for number in range(1_000)]
    assert near_duplicates(chunks_of(*texts)) == []
    assert calls == []


@needs_datasketch
def test_many_copies_of_one_page_all_point_to_the_first():
    texts = [f"{PAGE} {'Thanks' if at % 2 else 'Regards'}{'!' * at}" for at in range(300)]
    found = near_duplicates(chunks_of(*texts))
    assert len(found) == 299
    assert {one.of for one in found} == {"0"}


WORDS = st.sampled_from("pump motor plate label parcel room fault cause not 14 41 always".split())


@needs_datasketch
@given(st.lists(st.lists(WORDS, min_size=8, max_size=40).map(" ".join), max_size=12))
def test_a_suggestion_holds_what_it_promises(texts):
    chunks = chunks_of(*texts)
    found = near_duplicates(chunks, threshold=0.8)
    exact = exact_duplicates(chunks)
    duplicates = {one.id for one in found}
    assert not duplicates & {one.id for one in exact}
    for one in found:
        mine, theirs = texts[int(one.id)], texts[int(one.of)]
        assert one.of not in duplicates
        assert int(one.of) < int(one.id)
        assert jaccard(shingles(mine), shingles(theirs)) == one.similarity >= 0.8
        assert telling(mine) == telling(theirs)
        assert folded(mine) != folded(theirs)


# -- sketches


@given(st.text(st.characters(codec="ascii")))
def test_ascii_texts_have_the_words_that_all_texts_have(text):
    with_umlaut = shingles(text + " ä").tolist()
    words = [*tokens(text), "ä"]
    assert len(with_umlaut) == len(
        {tuple(words[at : at + 3]) for at in range(len(words) - 2)} or [1]
    )
    if len(tokens(text)) >= 3:
        assert set(shingles(text).tolist()) <= set(with_umlaut)
    else:
        assert len(shingles(text)) == bool(tokens(text))


@given(st.lists(WORDS, min_size=3, max_size=30), st.lists(WORDS, min_size=3, max_size=30))
def test_jaccard_is_that_of_the_sets_of_3_grams(one, other):
    sets = [{tuple(words[at : at + 3]) for at in range(len(words) - 2)} for words in (one, other)]
    expected = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    grams = [shingles(" ".join(words)) for words in (one, other)]
    assert jaccard(*grams) == jaccard(*reversed(grams)) == expected


def test_texts_without_words_have_nothing_in_common():
    assert jaccard(shingles(""), shingles("")) == 0
    assert jaccard(shingles("..."), shingles("a b c")) == 0


@needs_datasketch
@given(st.integers(0, 60), st.integers(1, 60))
def test_sketches_agree_about_as_much_as_the_texts(common, own):
    shared = [f"c{at}" for at in range(common)]
    grams = [shingles(" ".join([*shared, *(f"{side}{at}" for at in range(own))])) for side in "xy"]
    assume(all(len(gram) for gram in grams))
    one, other = sketch(grams)
    assert abs(float((one == other).mean()) - jaccard(*grams)) <= 0.25


@needs_datasketch
def test_sketches_are_the_same_in_every_process_and_named_by_their_scheme():
    code = (
        "from langchain_feedback.index.sketches import shingles, sketch;"
        f"print(sketch([shingles({PAGE!r})])[0].tolist())"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(sketch([shingles(PAGE)])[0].tolist())
    assert SKETCH_SCHEME.startswith(f"affine32:{PERMUTATIONS}:")
    assert sketch([]).shape == (0, PERMUTATIONS)
    assert sketch([shingles("")]).dtype == np.uint32


def test_a_missing_datasketch_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasketch", None)
    sketches._minhash.cache_clear()
    with pytest.raises(MissingExtraError, match=r"langchain-feedback\[care\]"):
        near_duplicates(chunks_of(PAGE, PAGE + " Now."))
    assert exact_duplicates(chunks_of(PAGE, PAGE)) != []
    sketches._minhash.cache_clear()
