"""The word search: scores, order, `k`, copies, and questions in other words."""

import asyncio
import json
import pickle
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_tests.integration_tests import RetrieversIntegrationTests
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from langchain_feedback.errors import MissingExtraError
from langchain_feedback.local import TfidfRetriever, read_folder, split_sections

SHARED = Path(__file__).parents[3].parent / "shared" / "data" / "handbook"
TEXTS = [
    "Refunds take five days after approval.",
    "A server reboots in two minutes.",
    "Ask for a refund within fourteen days.",
    "Backups of a server are kept for two weeks.",
]


def documents(*texts, **metadata):
    return [
        Document(id=str(at), page_content=text, metadata=dict(metadata))
        for at, text in enumerate(texts)
    ]


def ids(found):
    return [document.id for document in found]


@pytest.fixture
def retriever():
    return TfidfRetriever.from_documents(documents(*TEXTS), k=3)


class TestHandbook:
    @pytest.fixture
    def handbook(self):
        if not SHARED.exists():
            pytest.skip(f"the handbook's data are not at {SHARED}")
        lines = (SHARED / "handbook.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return [Document(id=row["id"], page_content=row["text"]) for row in rows]

    def test_the_expected_candidates_are_found_exactly(self, handbook):
        golden, expected = (
            json.loads((SHARED / name).read_text(encoding="utf-8"))
            for name in ("golden.json", "expected.json")
        )
        stop_words = golden["stop_words"]
        retriever = TfidfRetriever.from_documents(handbook, k=4, stop_words=stop_words)
        found = {question: ids(retriever.invoke(question)) for question in expected["candidates"]}
        assert found == expected["candidates"]


WORDS = st.sampled_from(["refund", "days", "server", "plan", "the", "x", "5", "Plan"])


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=8), min_size=1, max_size=8),
    st.lists(WORDS, min_size=1, max_size=5),
)
def test_the_order_is_that_of_scikit_learns_cosine(contents, question):
    texts, query = ["refund", *map(" ".join, contents)], " ".join(question)
    found = TfidfRetriever.from_documents(documents(*texts), k=5, stop_words=None).invoke(query)
    vectorizer = TfidfVectorizer()
    matrix = vectorizer.fit_transform(texts)
    scores = cosine_similarity(matrix, vectorizer.transform([query])).ravel()
    best = [at for at in np.argsort(-scores.round(9), kind="stable") if scores[at] > 0][:5]
    assert [round(scores[int(at)], 9) for at in ids(found)] == [round(scores[i], 9) for i in best]


class TestResults:
    def test_documents_without_a_word_of_the_question_are_left_out(self, retriever):
        assert ids(retriever.invoke("refund")) == ["2"]
        assert retriever.invoke("telephone") == []
        assert retriever.invoke("") == []

    def test_equal_scores_keep_the_order_of_the_documents(self):
        texts = ["plan a", "other", "plan b", "plan a", "plan a"]
        retriever = TfidfRetriever.from_documents(documents(*texts), k=4)
        assert ids(retriever.invoke("plan")) == ["0", "2", "3", "4"]

    def test_results_are_deep_copies(self):
        given_ = documents("refund", tags=["a"])
        retriever = TfidfRetriever.from_documents(given_)
        for _ in range(2):
            (found,) = retriever.invoke("refund")
            assert found.metadata == {"tags": ["a"]}
            found.metadata["tags"].append("b")
            found.page_content = "changed"

    def test_later_changes_of_the_given_documents_do_not_count(self):
        given_ = documents("refund", tags=["a"])
        retriever = TfidfRetriever.from_documents(given_)
        given_[0].metadata["tags"].clear()
        given_[0].page_content = "changed"
        assert retriever.invoke("refund") == documents("refund", tags=["a"])

    def test_the_retriever_survives_pickling(self, retriever):
        for one in (retriever, TfidfRetriever.for_files(documents(*TEXTS))):
            again = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
            assert again.invoke("server refund days") == one.invoke("server refund days")

    def test_its_text_form_does_not_print_every_document(self, retriever):
        assert "Refunds" not in repr(retriever)


class TestK:
    QUESTION = "refund server days"

    def test_it_is_4_unless_said_otherwise(self):
        retriever = TfidfRetriever.from_documents(documents(*["plan"] * 9))
        assert len(retriever.invoke("plan")) == 4

    def test_a_call_may_ask_for_fewer_or_more(self, retriever):
        assert [len(retriever.invoke(self.QUESTION, k=k)) for k in (1, 2, 4, 99)] == [1, 2, 4, 4]
        assert len(retriever.invoke(self.QUESTION, k=None)) == 3
        assert len(retriever.invoke(self.QUESTION)) == 3

    async def test_every_way_to_call_gives_the_same(self, retriever):
        question, expected = self.QUESTION, retriever.invoke(self.QUESTION, k=2)
        assert len(expected) == 2
        assert await retriever.ainvoke(question, k=2) == expected
        assert retriever.batch([question] * 2, k=2) == [expected] * 2
        assert await retriever.abatch([question] * 2, k=2) == [expected] * 2
        assert list(retriever.stream(question, k=2)) == [expected]
        assert [part async for part in retriever.astream(question, k=2)] == [expected]
        assert retriever.bind(k=2).invoke(question) == expected
        assert await retriever.bind(k=2).ainvoke(question) == expected
        assert await retriever.ainvoke(question) == retriever.invoke(question)

    @pytest.mark.parametrize("k", [0, -1])
    async def test_less_than_one_is_refused(self, retriever, k):
        with pytest.raises(ValueError, match=f"k must be at least 1, not {k}"):
            retriever.invoke("refund", k=k)
        with pytest.raises(ValueError, match=f"k must be at least 1, not {k}"):
            await retriever.ainvoke("refund", k=k)
        with pytest.raises(ValueError, match="greater than or equal to 1"):
            TfidfRetriever.from_documents(documents("plan"), k=k)

    def test_a_misspelt_option_is_refused(self, retriever):
        with pytest.raises(TypeError, match="top_k"):
            retriever.invoke("refund", top_k=2)


async def test_the_search_does_not_run_on_the_event_loop(retriever, monkeypatch):
    threads, search = [], TfidfRetriever._search

    def spy(*args):
        threads.append(threading.get_ident())
        return search(*args)

    monkeypatch.setattr(TfidfRetriever, "_search", spy)
    await asyncio.gather(*(retriever.ainvoke("refund") for _ in range(3)))
    assert len(threads) == 3
    assert threading.get_ident() not in threads


class TestOptions:
    def test_stop_words(self):
        texts = documents("the plan", "the server")
        question = "the plan"
        find = partial(TfidfRetriever.from_documents, texts)
        assert ids(find().invoke(question)) == ["0"]
        assert ids(find(stop_words=None).invoke(question)) == ["0", "1"]
        assert ids(find(stop_words=["plan"]).invoke(question)) == ["0", "1"]
        assert ids(find(stop_words=("plan", "the")).invoke("server")) == ["1"]

    def test_headings_do_not_count(self):
        texts = documents("Five days.", heading="Billing > Refunds", source="money/costs.md")
        assert TfidfRetriever.from_documents(texts).invoke("refunds") == []

    @pytest.mark.parametrize("build", [TfidfRetriever.from_documents, TfidfRetriever.for_files])
    def test_nothing_to_search_is_refused_with_what_to_do(self, build):
        with pytest.raises(ValueError, match=r"no documents to search\. Give at least one"):
            build([])
        with pytest.raises(ValueError, match=r"None of the 2 documents has a word.*page_content"):
            build(documents("", "the of ..."))

    def test_a_missing_package_is_named_with_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
        for build in (TfidfRetriever.from_documents, TfidfRetriever.for_files):
            with pytest.raises(MissingExtraError, match=r"langchain-feedback\[local\]"):
                build(documents("plan"))


def meets(question, text):
    """Tell whether a question finds a text among others by a word of its own."""
    chunks = documents(text, "Quite unrelated: zebra, xylophone.")
    return ids(TfidfRetriever.for_files(chunks).invoke(question)) == ["0"]


class TestForFiles:
    @pytest.mark.parametrize(
        "forms",
        [
            "cancel cancels cancelled canceled cancelling cancellation",
            "refund refunds refunded refunding refundable",
            "bill bills billed billing",
            "plan plans planned planning",
            "use uses used using",
            "policy policies",
            "apply applies applied applying",
            "agree agrees agreed",
            "add adds added adding",
            "process processes processed processing",
            "class classes",
            "invoice invoices invoicing",
            "configure configured configuration",
            "rembourser remboursement remboursé remboursés",
            "Kündigung kündigen Kündigungen",
            "cancelar cancelación cancelado",
            "Été ETE",
            "Straße STRASSE",
        ],
    )
    def test_forms_of_a_word_meet(self, forms):
        first, *others = forms.split()
        for other in others:
            assert meets(first, other), other
            assert meets(other, first), other

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("string", "sting"),
            ("need", "neither"),
            ("status", "state"),
            ("mp3", "mp4"),
            ("red", "r"),
        ],
    )
    def test_other_words_do_not(self, one, other):
        assert not meets(one, other)

    @pytest.mark.parametrize(
        ("question", "text"),
        [
            ("What is max_retries?", "Set MAX_RETRIES to 3."),
            ("How many retries?", "`max_retries` is 2."),
            ("What happens after 5?", "5 tries"),
            ("返金はいつですか", "返金は五営業日以内です。"),
            ("환불 기간", "환불은 5일 걸립니다."),
            ("रिफंड कब", "रिफंड में पाँच दिन"),
            ("การคืนเงิน", "คืนเงินภายในห้าวัน"),
            ("ﬁle ＡＰＩ", "file api"),
            ("Où est l'accès ?", "L’accès est ouvert."),
        ],
    )
    def test_scripts_and_spellings(self, question, text):
        assert meets(question, text)

    @pytest.mark.parametrize(
        "question",
        [
            "How do I do this?",
            "What isn't there, and why?",
            "Wie lange? Warum? Wo?",
            "Combien ? Pourquoi ?",
            "¿Cuánto? ¿Dónde?",
            "a b c",
        ],
    )
    def test_words_that_every_question_has_find_nothing(self, question):
        texts = [*TEXTS, "How do you do this there? What, why? Wie, warum, wo. Combien? A b c."]
        assert TfidfRetriever.for_files(documents(*texts, "¿Cuánto?")).invoke(question) == []

    def test_headings_and_file_names_count(self):
        chunks = documents("It takes five days.", heading="Billing > Refunds", source="a/costs.md")
        retriever = TfidfRetriever.for_files([*chunks, *documents("Refund somewhere in passing.")])
        assert len(retriever.invoke("refund")) == 2
        assert retriever.invoke("refund")[0].metadata["heading"] == "Billing > Refunds"
        assert len(retriever.invoke("cost")) == 1
        assert retriever.invoke("md") == []

    def test_a_long_chunk_that_says_more_beats_a_short_one_that_says_less(self):
        filler = " ".join(f"detail{number}" for number in range(30))
        texts = [f"A refund reaches the card after approval {filler}", "refund"]
        assert ids(TfidfRetriever.for_files(documents(*texts)).invoke("refund card"))[0] == "0"

    def test_questions_in_other_words_find_their_answers_in_a_folder(self, tmp_path):
        for name, text in FOLDER.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        chunks = split_sections(read_folder(tmp_path).sections)
        retriever = TfidfRetriever.for_files(chunks, k=2)
        for question, answer in QUESTIONS.items():
            found = "\n".join(chunk.page_content for chunk in retriever.invoke(question))
            assert answer in found, question


FOLDER = {
    "billing.md": "# Billing\n\nInvoices are sent on the first day of a month.\n\n"
    "## Refund window\n\nAsk within fourteen days of the first payment.\n\n"
    "## Changing plans\n\nThe difference is charged at once.\n",
    "servers.html": "<h1>Servers</h1><h2>Restarting</h2>"
    "<p>Use the console; it takes two minutes.</p>"
    "<h2>Backups</h2><p>Nightly snapshots are kept for two weeks.</p>",
    "account.txt": "Cancel any time in the settings.\n\nAfter that the data stay for thirty days.",
}
QUESTIONS = {
    "How long do I have for refunding?": "fourteen days",
    "When will I be invoiced?": "first day of a month",
    "What does it cost to change my plan?": "charged at once",
    "How can I restart the machine?": "two minutes",
    "How old can a restored backup be?": "two weeks",
    "Is cancelling possible at any time?": "Cancel any time",
}


class TestStandard(RetrieversIntegrationTests):
    """LangChain's own tests of retrievers."""

    @property
    def retriever_constructor(self):
        return TfidfRetriever.from_documents

    @property
    def retriever_constructor_params(self):
        return {"documents": documents(*TEXTS)}

    @property
    def retriever_query_example(self):
        return "refund server days"
