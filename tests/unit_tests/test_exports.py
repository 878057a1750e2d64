import subprocess
import sys

import pytest

import langchain_feedback


def test_all_is_sorted_and_every_name_reads_the_same_twice():
    assert langchain_feedback.__all__ == sorted(langchain_feedback.__all__)
    for name in langchain_feedback.__all__:
        first, second = getattr(langchain_feedback, name), getattr(langchain_feedback, name)
        assert first is second
        assert name in dir(langchain_feedback)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = langchain_feedback.nothing_of_the_kind


def test_the_root_loads_nothing_before_it_is_used():
    code = (
        "import sys, langchain_feedback;"
        "assert not {'langgraph', 'numpy', 'langchain_core'} & set(sys.modules);"
        "langchain_feedback.locate_quote;"
        "assert 'langgraph' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_importing_every_name_warns_of_nothing():
    code = "from langchain_feedback import *"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
