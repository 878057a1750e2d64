"""A tiny cross-encoder with random weights, made here and trained for real: nothing is downloaded.

Skipped where sentence-transformers is not installed (`make exports` installs it), but for what
the digest of a folder promises.
"""
# ruff: noqa: PLC0415  PyTorch is not installed where most tests run

import importlib.util
import json
import logging
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from langchain_feedback import FeedbackRetriever
from langchain_feedback.errors import ArtifactError, MissingExtraError, NotEnoughFeedbackError
from langchain_feedback.loop.cross_encoder import CrossEncoderEstimator
from langchain_feedback.loop.training import train_ranker
from langchain_feedback.ranking.cross_encoder import CrossEncoderRanker, folder_digest
from langchain_feedback.ranking.estimating import Estimator, TrainedRanker
from langchain_feedback.ranking.features import WordWeights
from langchain_feedback.ranking.linear import LinearRanker, Ranker, TrainingGroup
from langchain_feedback.ranking.loading import load_ranker
from langchain_feedback.ranking.views import Candidates
from langchain_feedback.store.rankers import activate
from langchain_feedback.store.transactions import clock, writing
from tests.unit_tests.loop.learned import reviewed

INSTALLED = all(
    importlib.util.find_spec(name) for name in ("sentence_transformers", "datasets", "accelerate")
)
needs_torch = pytest.mark.skipif(
    not INSTALLED, reason="sentence-transformers[train] is not installed: see make exports"
)
LOSSES = ["binary_cross_entropy", "multiple_negatives", "lambda"]
NONE = WordWeights.of([])
TOPICS = [f"topic{number}" for number in range(8)]
STALE = "old"
"""The mark that the model is to learn: only wrong chunks carry it. That both texts share a
word is nothing that a random model learns in a few seconds."""


def group(number, pool=6):
    chance = random.Random(number)
    right = chance.randrange(pool)
    documents = [
        Document(f"this {'is' if at == right else STALE} {chance.choice(TOPICS)} .", id=f"c{at}")
        for at in range(pool)
    ]
    question = f"what is {chance.choice(TOPICS)} ?"
    return TrainingGroup(question, documents, range(pool), frozenset({right}))


def candidates(one):
    return Candidates(np.arange(len(one.documents)), one.documents)


@pytest.fixture(scope="module")
def one_thread():
    """Threads that wait for each other beside other tests take minutes for these seconds."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bert(tmp_path_factory, one_thread):
    """A folder with a random BERT of two layers and a vocabulary of whole words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertForSequenceClassification
    from transformers import PreTrainedTokenizerFast as Fast

    torch.manual_seed(1)
    names = "[PAD] [UNK] [CLS] [SEP] [MASK] what this is the text of answer to part . ?".split()
    names += [STALE, *TOPICS, *(f"Part{n}" for n in range(6))]
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    special |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}
    vocabulary = {name: at for at, name in enumerate(names)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    folder = tmp_path_factory.mktemp("bert")
    config = BertConfig(
        vocab_size=len(names), hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=64, num_labels=1,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    Fast(tokenizer_object=words, **special).save_pretrained(folder)
    return folder


@pytest.fixture
def estimator(bert, tmp_path):
    def make(**options):
        given = {"epochs": 8, "learning_rate": 3e-3, "least": 30} | options
        return CrossEncoderEstimator(str(bert), tmp_path / "rankers", **given)

    return make


@pytest.fixture
def ranker(bert):
    return CrossEncoderRanker.of(bert, device="cpu")


def right_first(ranker, groups):
    firsts = (int(ranker.score(one.question, candidates(one)).argmax()) for one in groups)
    return sum(first in one.right for first, one in zip(firsts, groups, strict=True))


# -- training


@needs_torch
@pytest.mark.parametrize("loss", LOSSES)
def test_a_tiny_model_learns_from_reviewed_questions_by_each_loss(estimator, ranker, loss):
    held_out = [group(number) for number in range(1_000, 1_040)]
    assert right_first(ranker, held_out) < 10, "it knows nothing yet"
    found = estimator(loss=loss).fit([group(number) for number in range(40)], NONE)
    assert isinstance(found, TrainedRanker)
    assert right_first(found, held_out) >= 36
    assert found.folder.parent.name == "rankers"
    assert found.sha256.startswith(found.folder.name)
    # Nothing of the training is left beside it.
    assert [one.name for one in found.folder.parent.iterdir()] == [found.folder.name]
    assert not [one for one in found.folder.rglob("*") if one.suffix in {".bin", ".pt", ".py"}]


@needs_torch
def test_the_same_labels_make_the_same_model(estimator):
    groups = [group(number) for number in range(30)]
    first, again, other = (estimator(epochs=1, seed=seed).fit(groups, NONE) for seed in (0, 0, 1))
    assert first == again
    assert other.sha256 != first.sha256


def rows(loss, one, **options):
    made = CrossEncoderEstimator("model", "rankers", loss=loss, **options)
    return list(made._rows(one))


def test_the_rows_are_the_named_chunk_and_the_first_others_of_the_pool():
    documents = [Document(text) for text in ("a", "b", "c", "d", "e", "b", "f")]
    # In no order, and with one that the base lacks: that is no hard negative.
    one = TrainingGroup("q?", documents, [3, 0, 4, 1, -1, 5, 2], frozenset({3}))
    assert [(row["text"], row["label"]) for row in rows("binary_cross_entropy", one)] == [
        ("d", 1.0), ("b", 0.0), ("f", 0.0), ("a", 0.0), ("c", 0.0),
    ]  # fmt: skip
    assert rows("multiple_negatives", one, negatives=2) == [
        {"anchor": "q?", "positive": "d", "negative": text} for text in "bf"
    ]
    [row] = rows("lambda", one, negatives=9)
    assert row == {"query": "q?", "docs": list("dbface"), "labels": [1.0] + [0.0] * 5}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_copy_of_the_right_text_is_no_wrong_one(loss):
    same = [Document("a"), Document("a"), Document("b")]
    said = json.dumps(rows(loss, TrainingGroup("q?", same, range(3), frozenset({1}))))
    assert said.count('"a"') == 1
    nothing = TrainingGroup("q?", same[:2], range(2), frozenset({1}))
    assert rows(loss, nothing) == []


def test_it_needs_400_reviewed_questions_and_says_so(tmp_path):
    made = CrossEncoderEstimator("model", tmp_path / "rankers")
    assert isinstance(made, Estimator)
    with pytest.raises(NotEnoughFeedbackError, match=r"400 reviewed .* there are 40: a linear"):
        made.fit([group(number) for number in range(40)], NONE)
    assert not (tmp_path / "rankers").exists()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"loss": "hinge"}, r"loss must be one of .*lambda.* got 'hinge'"),
        ({"negatives": 0}, "negatives must be at least 1"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"least": 0}, "least must be at least 1"),
    ],
)
def test_settings_that_train_nothing_are_refused(options, told):
    with pytest.raises(ValueError, match=told):
        CrossEncoderEstimator("model", "rankers", **options)


def test_what_decides_the_model_is_in_its_settings_and_where_it_is_kept_is_not():
    one, other = (CrossEncoderEstimator("m", folder).settings for folder in ("a", "b"))
    assert one == other == json.loads(json.dumps(one))
    assert one != CrossEncoderEstimator("m", "a", loss="lambda").settings


# -- the folder


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "model"
    (made / "sub").mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "model.safetensors").write_bytes(b"numbers")
    (made / "sub/vocab.txt").write_text("words")
    return made


def test_a_digest_is_of_all_names_and_contents_and_not_of_the_place(folder, tmp_path):
    digest = folder_digest(folder)
    moved = folder.rename(tmp_path / "elsewhere")
    assert folder_digest(moved) == digest
    (moved / "sub/vocab.txt").rename(moved / "sub/other.txt")
    renamed = folder_digest(moved)
    (moved / "config.json").write_text("{ }")
    changed = folder_digest(moved)
    (moved / "README.md").touch()
    assert len({digest, renamed, changed, folder_digest(moved)}) == 4


def test_bytes_do_not_move_from_one_file_to_the_next(folder):
    digests = set()
    for first, second in (("ab", "c"), ("a", "bc"), ("abc", "")):
        (folder / "x.txt").write_text(first)
        (folder / "y.txt").write_text(second)
        digests.add(folder_digest(folder))
    assert len(digests) == 3


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "training_args.pt", "modeling.py", "w.pkl", "m.onnx", "plain"]
)
def test_a_folder_with_anything_that_may_run_is_refused(folder, name):
    digest = folder_digest(folder)
    (folder / "sub" / name).write_bytes(b"x")
    with pytest.raises(ArtifactError, match=name):
        folder_digest(folder)
    with pytest.raises(ArtifactError, match=name):
        CrossEncoderRanker(folder, digest)


def test_a_folder_with_a_link_is_refused(folder, tmp_path):
    (tmp_path / "outside.json").write_text("{}")
    (folder / "linked.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(ArtifactError, match="no links"):
        folder_digest(folder)


def test_a_folder_without_weights_or_that_is_gone_is_refused(folder, tmp_path):
    (folder / "model.safetensors").unlink()
    for place in (folder, tmp_path / "nowhere", folder / "config.json"):
        with pytest.raises(ArtifactError, match=r"no cross-encoder in .*safetensors"):
            folder_digest(place)


def test_a_changed_folder_is_refused_before_anything_of_it_is_read(folder):
    digest = folder_digest(folder)
    (folder / "model.safetensors").write_bytes(b"Numbers")
    with pytest.raises(ArtifactError, match="not those that were trained"):
        CrossEncoderRanker(folder, digest)
    text = json.dumps({"format": 1, "folder": str(folder), "sha256": digest})
    with pytest.raises(ArtifactError, match="not those that were trained"):
        load_ranker("cross_encoder", text)


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "[" * 200_000, '{"format": 2, "folder": "x", "sha256": "y"}',
        '{"format": 1, "sha256": "y"}', '{"format": 1, "folder": 7, "sha256": "y"}',
        '{"format": 1, "folder": "nowhere", "sha256": "y"}',
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_damaged_artifact_is_refused(text):
    with pytest.raises(ArtifactError):
        load_ranker("cross_encoder", text)


@pytest.mark.skipif(INSTALLED, reason="sentence-transformers is installed")
def test_without_the_extra_the_message_says_what_to_install(folder, tmp_path):
    for make in (
        lambda: CrossEncoderRanker.of(folder),
        lambda: CrossEncoderEstimator("m", tmp_path, least=1).fit([group(0)], NONE),
    ):
        with pytest.raises(MissingExtraError, match=r"langchain-feedback\[train\]"):
            make()


@needs_torch
def test_a_folder_that_is_no_model_is_refused(folder):
    with pytest.raises(ArtifactError, match="cannot be loaded"):
        CrossEncoderRanker.of(folder)


@needs_torch
def test_a_model_of_two_scores_is_refused(bert, tmp_path):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    many = AutoModelForSequenceClassification.from_pretrained(
        bert, num_labels=2, ignore_mismatched_sizes=True
    )
    many.save_pretrained(tmp_path / "two")
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "two")
    with pytest.raises(ArtifactError, match="gives 2 scores"):
        CrossEncoderRanker.of(tmp_path / "two")


class _Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@needs_torch
def test_weights_that_are_pickled_are_not_trained_on_either(bert, tmp_path):
    """A base model is no artifact with a digest, but it is unpickled as little."""
    base = tmp_path / "base"
    base.mkdir()
    for file in bert.iterdir():
        if file.suffix != ".safetensors":
            (base / file.name).write_bytes(file.read_bytes())
    (base / "pytorch_model.bin").write_bytes(pickle.dumps(_Bomb(tmp_path / "ran")))
    made = CrossEncoderEstimator(str(base), tmp_path / "rankers", least=1)
    with pytest.raises(OSError, match="safetensors"):
        made.fit([group(0)], NONE)
    assert not (tmp_path / "ran").exists()
    assert list((tmp_path / "rankers").iterdir()) == []


# -- scoring


@needs_torch
def test_it_scores_as_the_library_does_in_any_order_and_size_of_batch(ranker):
    from sentence_transformers import CrossEncoder
    from torch import nn

    one = group(3, pool=9)
    scores = ranker.score(one.question, candidates(one))
    plain = CrossEncoder(str(ranker.folder), device="cpu")
    pairs = [(one.question, document.page_content) for document in one.documents]
    np.testing.assert_allclose(scores, plain.predict(pairs, activation_fn=nn.Identity()), 1e-4)
    small = CrossEncoderRanker(ranker.folder, ranker.sha256, "cpu", batch_size=2)
    order = [4, 0, 8, 1, 7, 2, 6, 3, 5]
    turned = small.scorer(one.question, [one.documents[at] for at in order])
    np.testing.assert_allclose(turned, scores[order], rtol=1e-4)
    assert isinstance(ranker, Ranker)


@needs_torch
def test_no_candidates_have_no_scores_and_candidates_need_documents(ranker):
    assert ranker.score("what?", Candidates([], [])).tolist() == []
    with pytest.raises(ValueError, match="reads the documents"):
        ranker.score("what?", Candidates([0]))


@needs_torch
def test_the_artifact_is_read_back_also_where_folders_lie_elsewhere(ranker, tmp_path):
    one = group(3)
    expected = ranker.score(one.question, candidates(one))
    again = load_ranker("cross_encoder", ranker.to_json())
    np.testing.assert_allclose(again.score(one.question, candidates(one)), expected, rtol=1e-4)
    copy = tmp_path / "mounted" / ranker.folder.name
    copy.mkdir(parents=True)
    for file in ranker.folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    moved = CrossEncoderRanker.from_json(ranker.to_json(), root=copy.parent, device="cpu")
    assert (moved.folder, moved.sha256) == (copy, ranker.sha256)


@needs_torch
def test_its_score_is_a_feature_of_the_linear_ranker(estimator):
    found = estimator().fit([group(number) for number in range(40)], NONE)
    groups = [group(number) for number in range(40, 80)]
    extra = {"cross_encoder": found.scorer}
    linear = LinearRanker.fit(groups, extra_features=extra)
    assert linear.weights[-1] > max(abs(weight) for weight in linear.weights[:-1])
    held_out = [group(number) for number in range(1_000, 1_040)]
    again = LinearRanker.from_json(linear.to_json(), extra_features=extra)
    assert right_first(again, held_out) >= 36


# -- in the loop


@needs_torch
def test_it_is_trained_kept_and_followed_like_any_other_ranker(store, estimator, caplog):
    for number in range(10):
        reviewed(store, number)
    made = estimator(least=3, epochs=1)
    record = train_ranker(store, estimator=made)
    assert (record.kind, record.groups >= 3) == ("cross_encoder", True)
    assert train_ranker(store, estimator=made) == record
    with writing(store) as (connection, _):
        at = clock(store, connection)
        activate(
            connection, store.namespace, record.ranker_id,
            action="promote", actor="ann", reason={}, at=at,
        )  # fmt: skip
    pool = group(1).documents
    base = RunnableLambda(lambda question: [one.model_copy() for one in pool])
    found = FeedbackRetriever(base_retriever=base, store=store, k=6).invoke("what is topic1 ?")
    order = load_ranker("cross_encoder", record.artifact).score(
        "what is topic1 ?", Candidates(np.arange(6), pool)
    )
    expected = [pool[at].id for at in np.argsort(-order, kind="stable")]
    assert [one.id for one in found] == expected
    assert store.trace(found[0].metadata["feedback"]["trace_id"]).ranker_id == record.ranker_id

    # A folder that somebody changed: the base's order, and a line that says why.
    weights = Path(json.loads(record.artifact)["folder"]) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with caplog.at_level(logging.WARNING):
        found = FeedbackRetriever(base_retriever=base, store=store, k=6).invoke("what is topic2 ?")
    assert [one.id for one in found] == [one.id for one in pool]
    assert "not those that were trained" in caplog.text
