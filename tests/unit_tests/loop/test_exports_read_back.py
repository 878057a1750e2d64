"""Exports as the tools read them that they are for: each test needs the tool."""
# ruff: noqa: PLC0415  most of these tools are not installed where most tests run

import importlib.util
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from langchain_feedback.loop import exports
from langchain_feedback.loop.exports import export
from langchain_feedback.store.feedback_store import FeedbackStore
from tests.langsmith_datasets import DatasetServer
from tests.unit_tests.loop.reviewed import question, unreviewed

NEEDS_TORCH = "sentence-transformers[train] is not installed; it is no dependency of ours"


@pytest.fixture
def reviewed(monkeypatch):
    """Eight reviewed questions, and one that is not."""
    given = [question(n, wrong=("a",) if n % 2 else ()) for n in range(8)] + [unreviewed(99)]

    def asked(store, *, include_unreviewed=False):
        return [one for one in given if include_unreviewed or not one.needs_review]

    monkeypatch.setattr(exports, "reviewed_questions", asked)
    return given


@pytest.fixture
def memory(reviewed):
    with FeedbackStore("sqlite://") as store:
        yield store


# -- sentence-transformers


@pytest.fixture
def bert(tmp_path):
    """A tiny BERT with random weights, made here: nothing is downloaded."""
    pytest.importorskip("sentence_transformers", reason=NEEDS_TORCH)
    pytest.importorskip("datasets", reason=NEEDS_TORCH)
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification, BertModel
    from transformers import PreTrainedTokenizerFast as Fast

    torch.manual_seed(0)
    names = "[PAD] [UNK] [CLS] [SEP] [MASK] Question Text of a b c d . ?".split()
    vocabulary = {name: at for at, name in enumerate(names + [str(n) for n in range(10)])}
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    special |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    for kind, name in ((BertModel, "encoder"), (BertForSequenceClassification, "cross")):
        kind(config).save_pretrained(tmp_path / name)
        Fast(tokenizer_object=words, **special).save_pretrained(tmp_path / name)
    return tmp_path


def trained(trainer):
    before = [weight.clone() for weight in trainer.model.parameters()]
    result = trainer.train()
    assert result.global_step == 1
    assert math.isfinite(result.training_loss)
    after = trainer.model.parameters()
    return any(not old.equal(new) for old, new in zip(before, after, strict=True))


def rows(path):
    import datasets

    return datasets.load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache")
    )


@pytest.mark.parametrize(
    ("to", "columns"),
    [("pairs", ["anchor", "positive"]), ("triplets", ["anchor", "positive", "negative"])],
)
def test_a_sentence_transformer_trains_on_pairs_and_triplets_check14(memory, bert, to, columns):
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    export(memory, to, bert / "rows.jsonl")
    found = rows(bert / "rows.jsonl")
    assert found.column_names == columns
    assert found[0]["positive"] == "Text of b."
    model = SentenceTransformer(str(bert / "encoder"), device="cpu")
    options = SentenceTransformerTrainingArguments(
        str(bert / "out"), max_steps=1, per_device_train_batch_size=4, report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    trainer = SentenceTransformerTrainer(model, options, train_dataset=found, loss=loss)
    assert trained(trainer)


def test_a_cross_encoder_trains_on_lists_check14(memory, bert):
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import LambdaLoss

    export(memory, "lists", bert / "rows.jsonl")
    found = rows(bert / "rows.jsonl")
    assert found.column_names == ["query", "docs", "labels"]
    assert found[0]["labels"] == [0, 1, 0, 0]
    model = CrossEncoder(str(bert / "cross"), device="cpu", num_labels=1)
    options = CrossEncoderTrainingArguments(
        str(bert / "out"), max_steps=1, per_device_train_batch_size=4, report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    trainer = CrossEncoderTrainer(model, options, train_dataset=found, loss=LambdaLoss(model))
    assert trained(trainer)


# -- relevance judgements


def test_pytrec_eval_judges_a_run_by_the_qrels_check14(memory, tmp_path):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is missing")
    export(memory, "beir", tmp_path / "beir")
    header, *lines = (tmp_path / "beir/qrels/test.tsv").read_text().splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    qrels = {}
    for line in lines:
        query, document, score = line.split("\t")
        qrels.setdefault(query, {})[document] = int(score)
    queries = {json.loads(one)["_id"] for one in (tmp_path / "beir/queries.jsonl").open()}
    corpus = {json.loads(one)["_id"] for one in (tmp_path / "beir/corpus.jsonl").open()}
    assert set(qrels) == queries == {f"q{number}" for number in range(8)}
    assert {one for judged in qrels.values() for one in judged} <= corpus == set("abcd")
    run = {query: {"a": 4.0, "b": 3.0, "c": 2.0} for query in queries}
    run["q0"] = {"b": 4.0, "a": 3.0}
    scores = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "recall_5"}).evaluate(run)
    assert scores["q0"] == {"recip_rank": 1.0, "recall_5": 1.0}
    assert scores["q1"] == {"recip_rank": 0.5, "recall_5": 1.0}


# -- LangSmith


@pytest.fixture(params=[True, False], ids=["multipart", "bulk"])
def server(request):
    with DatasetServer(multipart=request.param) as server:
        yield server


@pytest.fixture
def client(server):
    from langsmith import Client

    return Client(api_url=server.api_url, api_key="test", auto_batch_tracing=False)


def test_langsmith_gets_each_example_once_check14(memory, reviewed, server, client):
    reviewed[0] = question(0, correction="14 days.")
    done = export(memory, "langsmith", client=client, dataset="reviewed")
    assert (done.rows, done.created, done.updated) == (8, 8, 0)
    [dataset] = server.datasets.values()
    found = list(client.list_examples(dataset_id=dataset["id"], example_ids=[*server.examples]))
    assert found[0].inputs == {"question": "Question 0?"}
    assert found[0].outputs == {
        "answer": "14 days.",
        "contexts": ["Text of b."],
        "none_exists": False,
        "right_chunks": ["b"],
    }
    assert found[0].metadata["needs_review"] is False
    assert found[0].metadata["dataset_split"] == ["reviewed"]
    assert "answer" not in found[1].outputs
    assert "ann" not in json.dumps([*server.examples.values()])

    server.forget_calls()
    again = export(memory, "langsmith", client=client, dataset="reviewed")
    assert (again.rows, again.created, again.updated) == (8, 0, 0)
    assert server.writes() == []

    reviewed[1] = question(1, right=("c",))
    changed = export(memory, "langsmith", client=client, dataset=dataset["id"])
    assert (changed.created, changed.updated) == (0, 1)
    kept = {one["metadata"]["item_id"]: one for one in server.examples.values()}
    assert kept["item-1"]["outputs"]["right_chunks"] == ["c"]
    assert len(kept) == 8


def test_langsmith_is_told_what_needs_a_review_and_when_it_was_done_check14(
    memory, reviewed, server, client
):
    done = export(memory, "langsmith", client=client, dataset="d", include_unreviewed=True)
    assert done.created == 9
    kept = {one["metadata"]["item_id"]: one["metadata"] for one in server.examples.values()}
    assert kept["item-99"]["needs_review"] is True
    assert kept["item-99"]["dataset_split"] == ["needs_review"]
    reviewed[-1] = question(99)
    assert export(memory, "langsmith", client=client, dataset="d").updated == 1
    kept = {one["metadata"]["item_id"]: one["metadata"] for one in server.examples.values()}
    assert kept["item-99"]["needs_review"] is False
    assert kept["item-99"]["dataset_split"] == ["reviewed"]


def test_many_examples_and_two_datasets_do_not_meet(memory, reviewed, server, client):
    reviewed[:] = [question(number) for number in range(120)]
    for name in ("one", "two"):
        assert export(memory, "langsmith", client=client, dataset=name).created == 120
        assert export(memory, "langsmith", client=client, dataset=name).created == 0
    assert len(server.examples) == 240


def test_a_langsmith_that_refuses_is_told_and_the_next_export_goes_on(
    memory, reviewed, server, client
):
    from langsmith.utils import LangSmithError

    reviewed[:] = [question(number) for number in range(60)]
    export(memory, "langsmith", client=client, dataset="d")
    server.examples.clear()
    writes = []

    def second_fails(call):
        if call.method == "POST":
            writes.append(call)
        return 400 if len(writes) > 1 and call.method == "POST" else None

    server.fail = second_fails
    with pytest.raises(LangSmithError):
        export(memory, "langsmith", client=client, dataset="d")
    server.fail = lambda _: None
    assert export(memory, "langsmith", client=client, dataset="d").created == 10
    assert len(server.examples) == 60


# -- Argilla


class _Argilla(BaseHTTPRequestHandler):
    """Says who is logged in: a client asks for nothing else before it sends."""

    def do_GET(self):
        user = {"id": "11111111-1111-4111-8111-111111111111", "username": "ann", "role": "owner"}
        data = json.dumps(user).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Stay silent."""


@pytest.fixture
def argilla():
    if importlib.util.find_spec("argilla") is None:
        pytest.skip("argilla is not installed; it is no dependency of ours")
    import argilla

    server = HTTPServer(("127.0.0.1", 0), _Argilla)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    argilla.Argilla(api_url=f"http://127.0.0.1:{server.server_port}", api_key="test")
    yield argilla
    server.shutdown()
    server.server_close()


def test_argilla_reads_records_and_settings_check14(memory, reviewed, tmp_path, argilla):
    from argilla._models import DatasetModel
    from argilla.records._io import JsonIO

    reviewed[0] = question(0, right=(), none_exists=True, correction="Ask support.")
    export(memory, "argilla", tmp_path / "reviews", include_unreviewed=True)
    settings = argilla.Settings.from_json(tmp_path / "reviews/.argilla/settings.json")
    settings.validate()
    dataset = argilla.Dataset(name="reviews", settings=settings)
    model = json.loads((tmp_path / "reviews/.argilla/dataset.json").read_text())
    assert DatasetModel(**model).name == "reviews"

    records = JsonIO._records_from_json(tmp_path / "reviews/records.json")
    assert [record.id for record in records] == [one.item_id for one in reviewed]
    assert records[1].fields["question"] == "Question 1?"
    assert "[2] faq.md\nText of b." in records[1].fields["passages"]
    assert records[1].suggestions["right_passages"].value == ["2"]
    assert records[1].suggestions["verdict"].value == "confirm"
    assert records[0].suggestions["right_passages"].value == ["none"]
    assert records[0].suggestions["correction"].value == "Ask support."
    assert records[-1].metadata == {
        "needs_review": "true", "failure_class": "retrieval", "trace_id": "t99",
    }  # fmt: skip
    options = settings.questions["right_passages"].labels
    assert options == ["none", "1", "2", "3", "4"]
    for record in records:
        record.dataset = dataset
        sent = record.api_model()
        assert sent.fields.keys() <= {field.name for field in settings.fields}
        assert all(one.value is not None for one in sent.suggestions)
