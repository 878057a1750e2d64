"""Questions asked, as triage and fold-back read them."""

from dataclasses import replace

from langchain_feedback.store.asking import read_asks
from langchain_feedback.store.transactions import reading
from tests.unit_tests.store.tables import grown


def test_of_the_chunks_those_that_are_quoted_may_be_enough(store, url):
    grown(url)
    with reading(store) as connection:
        every = read_asks(connection, "default")
        quoted = read_asks(connection, "default", only_cited=True)
    cited = [tuple(chunk for chunk in ask.chunks if chunk.cited) for ask in every]
    assert [ask.chunks for ask in quoted] == cited
    assert quoted == [replace(ask, chunks=of) for ask, of in zip(every, cited, strict=True)]
    assert 0 < sum(map(len, cited)) < sum(len(ask.chunks) for ask in every)
