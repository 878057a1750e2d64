"""The rules over two asks of a session: by languages, by figures, and on real questions."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.loop._deriving.denials import denies
from langchain_feedback.loop._deriving.rules import (
    contradicts,
    is_regenerated,
    is_rephrased,
    names_another_figure,
)
from langchain_feedback.store.asking import Ask, AskedChunk
from langchain_feedback.store.questions import question_key
from tests.shared import HOSTILE, seconds, shared_data, shared_rows

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def ask(question_id: int, question: str = "?", *, after_s: float = 0, top: str = "", answer=None):
    found = AskedChunk(
        chunk_id=top, cell_id=top, content_hash="", attempt=1, base_rank=0, final_rank=0,
        returned=True, in_prompt=True, cited=None, grade=None, origin="base", source="",
    )  # fmt: skip
    return Ask(
        f"t{question_id}", question_id, question, "ann", "s", START + timedelta(seconds=after_s),
        answer, None, None, None, None, (found,) if top else (), (),
    )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "No, that's the old price.", "no", "Nope!", "That's wrong", "That’s not correct: it is 5",
        "You're wrong about that", "Are you sure?", "Nein, das kostet mehr", "Das stimmt nicht",
        "Stimmt nicht, es sind 30 Tage", "Non, c'est 30 jours", "C’est faux !",
        "Ce n'est pas vrai", "No, son 30 días", "¡No! Eso no es correcto", "Eso no es correcto",
        "No, sono 30 giorni", "Non è vero", "Não, são 30 dias", "Isso não é verdade",
        "Nee, dat klopt niet", "Dat klopt niet", "不对，是30天", "不是的", "错了", "不，是30天",
        "いいえ、30日です", "違います", "それは違うと思う", "아니요, 30일입니다", "Нет, 30 дней",
        "Это не так",
    ],
)  # fmt: skip
def test_denials_of_many_languages(text):
    assert denies(text)


@pytest.mark.parametrize(
    "text",
    [
        "No refunds for digital goods?", "No puedo iniciar sesión", "Non riesco a entrare",
        "Non-refundable tickets?", "No. 5 is missing", "No, thanks", "Nein, danke!",
        "Wrong address on my invoice, what now?", "Not right now, but later?",
        "Falsche Rechnung erhalten, was tun?", "Nothing arrived", "Noch eine Frage",
        "Nonprofit discount?", "Normal delivery time?", "不是会员可以退款吗", "错误代码E5是什么",
        "違う住所に送れますか", "Нет доступа к счёту", "How long?", "", "...", "Ok, and fees?",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_denial(text):
    assert not denies(text)


def test_a_no_to_a_question_of_the_answer_denies_nothing():
    first = ask(1, answer="Refunds take 14 days. Do you mean card payments?")
    assert not contradicts(first, ask(2, "No, bank transfers"))
    assert contradicts(first, ask(2, "That's wrong"))


REFUND = "How long do refunds take?", "Refunds take 14 days and cost 5 %."


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It says 30 days", True),
        ("30 days!", True),
        ("But refunds take thirty days in the terms, 30 days", True),
        ("Refunds cost 7%, I was told", True),
        ("Refunds cost 7 percent, I was told", True),
        ("Refunds take 14 days", False),
        ("What if it takes 30 days?", False),
        ("Can I get refunds after 30 days?", False),
        ("I have 3 refunds open", False),
        ("Shipping here in Norway needs 30 days by boat", False),
        ("", False),
    ],
)
def test_a_figure_contradicts_only_one_of_the_same_thing(reply, expected):
    assert names_another_figure(*REFUND, reply) is expected


@pytest.mark.parametrize(
    ("question", "answer", "reply", "expected"),
    [
        ("Wie lange?", "Das dauert 14 Tage.", "Es sind doch 30 Tagen", True),
        ("Combien ?", "Cela prend 14 jours.", "C'est écrit 30 jours", True),
        ("要多久？", "退款需要14天。", "写的是30天", True),
        ("When is it due?", "It is due on 1 March.", "It is due on April 1st", True),
        ("When is it due?", "It is due on 1 March.", "It is due on March 1", False),
        ("Wann?", "Fällig am 1. März.", "Fällig ist es am 3. April", True),
        ("Is 30 days right?", "No, 14 days.", "It says 30 days", False),
        ("How long?", "It takes a while.", "It takes 30 days", False),
        ("How much?", "It costs $5.", "It costs $7 now", True),
        ("How much?", "It costs $1,500.", "It costs $1500", False),
    ],
)
def test_figures_and_dates_of_other_languages(question, answer, reply, expected):
    assert names_another_figure(question, answer, reply) is expected


@given(
    gap=st.integers(-200, 400), same=st.booleans(), tops=st.sampled_from(["aa", "ab", "a", ""]),
    cosine=st.one_of(st.none(), st.floats(-1, 1)),
)  # fmt: skip
def test_no_pair_is_both_regenerated_and_rephrased(gap, same, tops, cosine):
    top, other = (*tops, "", "")[:2]
    first, then = ask(1, top=top), ask(1 if same else 2, after_s=gap, top=other)
    one, two = np.array([1, 0]), None if cosine is None else np.array([cosine, 0])
    again, anew = is_regenerated(first, then), is_rephrased(first, then, one, two)
    assert not (again and anew)
    assert not (again or anew) or 0 <= gap <= 120
    # More alike is never less of a rephrase.
    if anew and cosine is not None:
        assert is_rephrased(first, then, one, np.array([1, 0]))


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80))
def test_the_rules_take_any_text(question, answer, reply):
    denies(reply)
    assert not names_another_figure(question, answer, answer)
    names_another_figure(question, answer, reply)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_long_texts_take_no_time_to_speak_of(text):
    first, then = ask(1, text, answer=text + " 14 days"), ask(2, text + " 30 days")
    assert seconds(lambda: contradicts(first, then)) < 5


def test_the_rephrase_rule_on_real_questions():
    """Questions of one passage are rephrased; those of other passages of its page are new ones."""
    folder = shared_data("feedbackqa_us")
    vectors = np.load(folder / "embeddings.npz")
    of_chunks, of_questions = (vectors[name].astype(np.float32) for name in ("corpus", "queries"))
    questions = [row["text"] for row in shared_rows("feedbackqa_us/queries.jsonl")]
    chunks = {row["_id"]: row for row in shared_rows("feedbackqa_us/corpus.jsonl")}
    lines = [line.split("\t") for line in (folder / "qrels.tsv").read_text().splitlines()[1:]]
    passage = {line[0]: line[1] for line in lines}
    gold = [passage[row["_id"]] for row in shared_rows("feedbackqa_us/queries.jsonl")]
    top = [str(at) for at in (of_questions @ of_chunks.T).argmax(axis=1)]
    keys = {key: at for at, key in enumerate(dict.fromkeys(map(question_key, questions)))}
    asks = [
        ask(keys[question_key(text)], text, top=at)
        for text, at in zip(questions, top, strict=True)
    ]
    pages = defaultdict(list)
    for at, chunk in enumerate(gold):
        pages[chunks[chunk]["metadata"]["url"]].append(at)
    pairs = [pair for page in pages.values() for pair in combinations(page, 2)]
    rng = np.random.default_rng(0)
    pairs = [pair for pair in pairs if gold[pair[0]] == gold[pair[1]] or rng.random() < 0.05]
    same = np.array([gold[a] == gold[b] for a, b in pairs])
    ours = np.array(
        [is_rephrased(asks[a], asks[b], of_questions[a], of_questions[b]) for a, b in pairs]
    )
    alone = np.array([float(of_questions[a] @ of_questions[b]) >= 0.82 for a, b in pairs])

    def precision_and_recall(found):
        recall, wrong = found[same].mean(), found[~same].mean()
        return 0.3 * recall / (0.3 * recall + 0.7 * wrong), recall

    (precision, recall), (_, recall_alone) = map(precision_and_recall, (ours, alone))
    assert precision > 0.9
    assert recall > 0.42
    assert recall > 2 * recall_alone
