"""`owners.toml`: who has which document, and what is wrong with the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_feedback.errors import LangChainFeedbackError
from langchain_feedback.loop.owners import Owner, Owners, OwnersFileError

FILE = """
[[owners]]
name = "billing"
sources = ["handbook/refund-*", "faq/*.md"]
channel = "webhook"
address = "https://docs.example.com/hook"
secret_env = "BILLING_SECRET"

[[owners]]
name = "everything"
sources = ["handbook/*"]
channel = "email"
address = "docs@example.com"

[default]
name = "docs"
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "owners.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_the_first_pattern_that_matches_names_the_owner(write, monkeypatch):
    monkeypatch.setenv("BILLING_SECRET", "s3cret")
    owners = Owners.from_toml(write(FILE))
    billing = Owner(
        "billing", "webhook", "https://docs.example.com/hook", "s3cret", "BILLING_SECRET"
    )
    assert owners.of("handbook/refund-window") == billing
    assert owners.of("faq/deep/down.md") == billing
    assert owners.of("handbook/keys").name == "everything"
    assert owners.of("Handbook/keys") == owners.of("") == Owner("docs", "outbox")
    assert owners.named("everything").address == "docs@example.com"
    assert owners.named("nobody") is None
    assert [owner.name for owner in owners] == ["billing", "everything", "docs"]


def test_without_a_default_some_sources_have_no_owner(write):
    owners = Owners.from_toml(write('[[owners]]\nname = "a"\nsources = ["*.md"]'))
    assert owners.of("b.txt") is None
    assert owners.of("") is None


def test_the_default_may_be_one_of_the_owners(write):
    text = '[default]\nname = "a"\n[[owners]]\nname = "a"\nsources = ["*.md"]\nchannel = "github"'
    owners = Owners.from_toml(write(text))
    assert owners.of("x") is owners.of("x.md")


def test_a_secret_is_read_from_the_environment_and_never_shown(write, monkeypatch):
    monkeypatch.setenv("BILLING_SECRET", "s3cret")
    assert "s3cret" not in repr(list(Owners.from_toml(write(FILE))))
    monkeypatch.delenv("BILLING_SECRET")
    assert Owners.from_toml(write(FILE)).named("billing").secret is None


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[[owners]\n", "line 1"),
        ('name = "a"', "at the top, key `name`"),
        ("owners = 3", "[[owners]]"),
        ('[[owners]]\nsources = ["*"]', "number 1, key `name`"),
        ('[[owners]]\nname = "a"', "number 1, key `sources`"),
        ('[[owners]]\nname = "a"\nsources = "*"', "number 1, key `sources`"),
        ('[[owners]]\nname = "a"\nsources = []', "number 1, key `sources`"),
        ('[[owners]]\nname = "a"\nsources = ["*"]\nchannel = "fax"', "key `channel`"),
        ('[[owners]]\nname = "a"\nsources = ["*"]\nsecret = "x1y2"', "key `secret`"),
        ('[[owners]]\nname = "a"\nsources = ["*"]\nchannel = "webhook"', "key `address`"),
        (
            '[[owners]]\nname = "a"\nsources = ["*"]\nchannel = "webhook"\naddress = "ftp://x"',
            "http",
        ),
        (
            '[[owners]]\nname = "a"\nsources = ["*"]\nchannel = "webhook"\naddress = "http://x"',
            "key `secret_env`",
        ),
        (
            '[[owners]]\nname = "a"\nsources = ["*"]\nchannel = "email"\naddress = "nobody"',
            "e-mail",
        ),
        ('[[owners]]\nname = "a\\nb"\nsources = ["*"]', "one line"),
        ('[[owners]]\nname = "a"\nsources = ["*"]\n' * 2, "twice"),
        ('[default]\nname = "a"\nsources = ["*"]', "[default]"),
        ("default = 3", "[default]"),
        (
            '[default]\nname = "a"\nchannel = "github"\n[[owners]]\nname = "a"\nsources = ["*"]',
            "[default]",
        ),
    ],
)
def test_a_bad_file_says_where_it_is_wrong(write, text, where):
    with pytest.raises(OwnersFileError) as told:
        Owners.from_toml(write(text))
    assert where in str(told.value)
    assert "owners.toml" in str(told.value)
    assert "x1y2" not in str(told.value)
    assert isinstance(told.value, LangChainFeedbackError)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path):
    with pytest.raises(OwnersFileError, match="cannot be read"):
        Owners.from_toml(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(OwnersFileError, match="no TOML"):
        Owners.from_toml(tmp_path / "bad.toml")


@given(st.text(), st.lists(st.text(min_size=1), max_size=4))
def test_any_source_has_one_owner_at_most_and_patterns_never_fail(source, patterns):
    first, rest = Owner("first"), Owner("rest")
    owners = Owners([(first, patterns), (rest, ["*"])])
    expected = {first, rest} if source else {None}
    assert owners.of(source) in expected
