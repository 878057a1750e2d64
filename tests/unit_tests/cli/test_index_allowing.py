"""`langchain-feedback index allow`: a person's word on a text that the gate finds wanting."""

import pytest

from langchain_feedback.index.gate import QualityGate
from tests.unit_tests.cli.index_kit import TEXTS


@pytest.fixture
def judged(site):
    site.synced()
    site.run("score", code=1)
    return site


def test_a_text_is_allowed_listed_and_taken_back(judged):
    assert "Nobody has allowed anything" in judged.run("allow")
    assert judged.json("sync", "--drop-junk", code=1)["junk"]
    why = ("--reason", "it is a title")
    printed = judged.run("allow", "toc", "--by", "rita", *why)
    assert "Texts that are allowed: 1" in printed
    assert judged.json("sync", "--drop-junk")["junk"] == []
    judged.follow(printed)  # what that changes
    with judged.store() as store:
        junk = next(one for one in judged.module().load() if one.id == "toc")
        assert QualityGate(store).hidden([junk]) == {}
    [one] = judged.json("allow")
    assert (one["actor"], one["reason"], one["chunks"]) == ("rita", "it is a title", ["toc"])
    assert "it is a title" in judged.run("allow")
    assert "no_statement (allowed)" in judged.run("score")  # 0: somebody looked at it
    assert judged.json("score")["allowed"] == 1
    assert judged.json("allow", "toc", "--by", "rita")["changed"] == 0
    done = judged.json("allow", "toc", "--undo", "--by", "rita")
    assert (done["changed"], judged.json("allow")) == (1, [])
    assert judged.json("sync", "--drop-junk", code=1)["junk"]


def test_it_is_found_in_the_store_where_no_loader_brings_it(judged):
    assert judged.json("allow", "toc", index=None)["changed"] == 1
    judged.json("allow", "toc", "--undo", index=None)
    judged.write({key: of for key, of in TEXTS.items() if key != "toc"})
    assert judged.json("allow", "toc")["changed"] == 1
    assert "no chunk 'none'" in judged.run("allow", "toc", "none", code=2)


def test_a_score_says_how_to_overrule_it(site):
    printed = site.run("score", "--namespace", "default", code=1)
    assert printed.splitlines()[-1].endswith("--by NAME")
    assert "index allow CHUNK --namespace default" in printed.splitlines()[-1]
