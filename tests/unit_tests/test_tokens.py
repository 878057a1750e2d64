"""Tokens: what is let through, and that nothing else is."""

import base64
import logging
import re
import string
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_feedback import FeedbackTokens, new_trace_id, trace_id_of
from langchain_feedback.errors import (
    ExpiredTokenError,
    InvalidTokenError,
    LangChainFeedbackError,
    TokenError,
)

OLD = "an old secret of the server: 32 or more"
NEW = "a new secret of the server: 32 or more."
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
TRACE = "01890a5d-ac96-774b-bcce-b302099a8057"
ALPHABET = string.ascii_letters + string.digits + "-_"

tokens = FeedbackTokens([NEW])


def test_a_token_says_what_it_was_issued_for():
    claims = tokens.read(tokens.issue(TRACE, actor="ann", now=NOW), now=NOW)
    assert (claims.scope, claims.subject) == ("signal", TRACE)
    assert claims.expires_at == NOW + timedelta(days=30)
    assert re.fullmatch(r"token:[0-9a-f]{16}", claims.actor)


def test_a_token_is_62_characters_that_need_no_escaping():
    for trace_id in (TRACE, new_trace_id(), "00000000-0000-0000-0000-000000000000"):
        for actor in (None, "ann", "x" * 10_000):
            assert re.fullmatch(r"[A-Za-z0-9_-]{62}", tokens.issue(trace_id, actor=actor))


def test_who_asked_is_no_word_of_the_token():
    token = tokens.issue(TRACE, actor="ann@example.org")
    raw = base64.urlsafe_b64decode(token + "==")
    assert b"ann" not in raw
    assert (
        tokens.read(token).actor
        != FeedbackTokens([OLD])
        .read(FeedbackTokens([OLD]).issue(TRACE, actor="ann@example.org"))
        .actor
    )  # nobody without the key can find the name by trying some


def test_one_person_has_one_name_over_all_traces_and_others_have_another():
    names = [
        tokens.read(tokens.issue(new_trace_id(), actor=actor)).actor
        for actor in ("ann", "ann", "ben", None, "")
    ]
    assert names[0] == names[1] != names[2]
    assert names[3] is names[4] is None


def test_a_token_knows_whom_it_was_issued_to_also_after_a_rotation():
    claims = FeedbackTokens([OLD]).read(FeedbackTokens([OLD]).issue(TRACE, actor="a\0\ud800nn"))
    both = FeedbackTokens([NEW, OLD])
    assert both.is_actor(claims, "a\0\ud800nn")
    assert not both.is_actor(claims, "ben")
    assert not both.is_actor(claims, "")
    assert not tokens.is_actor(claims, "a\0\ud800nn")
    nobody = tokens.read(tokens.issue(TRACE))
    assert not tokens.is_actor(nobody, "")


@pytest.mark.parametrize("actor", [None, "ann"])
def test_every_change_of_one_character_is_refused_check9(actor):
    token = tokens.issue(TRACE, actor=actor)
    refused = 0
    for place, was in enumerate(token):
        for other in ALPHABET:
            if other != was:
                with pytest.raises(InvalidTokenError):
                    tokens.read(token[:place] + other + token[place + 1 :])
                refused += 1
    assert refused == 62 * 63


def test_what_decodes_to_the_same_bytes_is_another_text_and_refused():
    token = tokens.issue(TRACE)
    raw = base64.urlsafe_b64decode(token + "==")
    same = [
        token[:-1] + last
        for last in ALPHABET
        if base64.urlsafe_b64decode(token[:-1] + last + "==") == raw
    ]
    assert len(same) == 16  # the last character has four spare bits
    good = [text for text in same if _is_good(text)]
    assert good == [token]
    for text in (
        token + "==",
        token + "=",
        f" {token}",
        f"{token}\n",
        f"{token[:31]}\n{token[31:]}",
    ):
        assert not _is_good(text)
    standard = base64.b64encode(raw).decode().rstrip("=")
    assert standard == token or not _is_good(standard)


def _is_good(token):
    try:
        tokens.read(token)
    except InvalidTokenError:
        return False
    return True


@given(st.one_of(st.text(), st.text(ALPHABET, min_size=62, max_size=62), st.binary(), st.none()))
@example("ä" * 62)
@example("\ud800" * 62)
@example("+/" * 31)
@example("=" * 62)
@example("A" * 62)
def test_whatever_a_client_sends_is_refused_in_one_way(anything):
    with pytest.raises(InvalidTokenError, match="no feedback token of this server"):
        tokens.read(anything)


def test_a_token_of_another_key_is_refused():
    with pytest.raises(InvalidTokenError):
        tokens.read(FeedbackTokens([OLD]).issue(TRACE))


def test_the_newest_key_signs_and_all_verify():
    both = FeedbackTokens([NEW, OLD])
    assert tokens.read(both.issue(TRACE)).subject == TRACE
    assert both.read(FeedbackTokens([OLD]).issue(TRACE)).subject == TRACE
    with pytest.raises(InvalidTokenError):
        FeedbackTokens([OLD]).read(both.issue(TRACE))


def test_keys_are_text_or_bytes():
    assert FeedbackTokens([NEW.encode()]).read(tokens.issue(TRACE)).subject == TRACE


@pytest.mark.parametrize("scope", ["signal", "owner", "review"])
@pytest.mark.parametrize("asked", ["signal", "owner", "review"])
def test_a_token_is_good_for_its_own_scope_only(scope, asked):
    token = tokens.issue(TRACE, scope=scope)
    if scope == asked:
        assert tokens.read(token, scope=asked).scope == scope
    else:
        with pytest.raises(InvalidTokenError, match=asked):
            tokens.read(token, scope=asked)


def test_an_unknown_scope_names_those_that_there_are():
    with pytest.raises(ValueError, match="signal, owner, review"):
        tokens.issue(TRACE, scope="admin")
    with pytest.raises(ValueError, match="signal, owner, review"):
        tokens.read(tokens.issue(TRACE), scope="admin")


@given(st.text(), st.text())
@example("", "\0")
@example("a\0", "a\ufffd")
def test_other_scopes_take_any_text_and_match_that_alone(subject, other):
    claims = tokens.read(tokens.issue(subject, scope="review"), scope="review")
    assert re.fullmatch(r"[0-9a-f]{32}", claims.subject)
    assert tokens.matches(claims, subject)
    assert tokens.matches(claims, other) == (_kept(other) == _kept(subject))


def _kept(text):
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")


def test_a_name_matches_under_every_key_and_in_its_own_scope():
    token = FeedbackTokens([OLD]).issue("ann", scope="review")
    both = FeedbackTokens([NEW, OLD])
    assert both.matches(both.read(token, scope="review"), "ann")
    review = tokens.read(tokens.issue("ann", scope="review"), scope="review")
    owner = tokens.read(tokens.issue("ann", scope="owner"), scope="owner")
    assert review.subject != owner.subject


def test_a_trace_matches_by_its_id():
    claims = tokens.read(tokens.issue(TRACE))
    assert tokens.matches(claims, TRACE)
    assert not tokens.matches(claims, new_trace_id())
    assert not tokens.matches(claims, "ä")


@pytest.mark.parametrize(
    "wrong",
    [
        "t-1",
        "",
        TRACE.upper(),
        TRACE.replace("-", ""),
        f"{{{TRACE}}}",
        f"urn:uuid:{TRACE}",
        None,
        7,
    ],
)
def test_a_trace_id_that_could_not_be_read_back_is_refused(wrong):
    with pytest.raises(ValueError, match="new_trace_id"):
        tokens.issue(wrong)


def test_documents_of_a_plain_retriever_take_one_line():
    found = [Document("A refund.", metadata={"feedback": {"trace_id": TRACE}})]
    assert tokens.read(tokens.issue(trace_id_of(found), actor="ann")).subject == TRACE


def test_a_token_expires_at_its_second():
    token = tokens.issue(TRACE, lifetime=timedelta(hours=1), now=NOW)
    assert tokens.read(token, now=NOW + timedelta(minutes=59, seconds=59)).subject == TRACE
    with pytest.raises(ExpiredTokenError, match="2026-05-04 at 13:00 UTC"):
        tokens.read(token, now=NOW + timedelta(hours=1))


def test_parts_of_a_second_are_rounded_up_so_that_no_token_is_born_dead():
    token = tokens.issue(TRACE, lifetime=timedelta(milliseconds=1), now=NOW)
    assert tokens.read(token, now=NOW).expires_at == NOW + timedelta(seconds=1)


def test_zones_do_not_matter():
    there = timezone(timedelta(hours=9))
    token = tokens.issue(TRACE, now=NOW.astimezone(there))
    assert token == tokens.issue(TRACE, now=NOW)
    assert tokens.read(token, now=NOW.astimezone(there)).expires_at.tzinfo is UTC


def test_the_clock_is_the_machines_where_none_is_given():
    left = tokens.read(tokens.issue(TRACE)).expires_at - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < left <= timedelta(days=30, seconds=1)
    with pytest.raises(ExpiredTokenError):
        tokens.read(tokens.issue(TRACE, now=datetime(2020, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(days=-1)])
def test_a_lifetime_is_above_0(lifetime):
    with pytest.raises(ValueError, match="above 0"):
        tokens.issue(TRACE, lifetime=lifetime)
    with pytest.raises(ValueError, match="above 0"):
        FeedbackTokens([NEW], lifetime=lifetime)


def test_a_lifetime_that_four_bytes_cannot_say_is_refused():
    with pytest.raises(ValueError, match="shorter lifetime"):
        tokens.issue(TRACE, lifetime=timedelta(days=365 * 100), now=NOW)


def test_an_instant_has_a_zone():
    with pytest.raises(ValueError, match="zone"):
        tokens.issue(TRACE, now=datetime(2026, 5, 4))  # noqa: DTZ001
    with pytest.raises(ValueError, match="zone"):
        tokens.read(tokens.issue(TRACE), now=datetime(2026, 5, 4))  # noqa: DTZ001


@pytest.mark.parametrize(
    "weak", ["", "hunter2", "x" * 31, "x" * 64, "0123456" * 8, b"short", b"\0" * 32]
)
def test_a_weak_key_is_refused_with_the_way_to_make_one_and_not_shown(weak):
    with pytest.raises(ValueError, match=r'python -c "import secrets') as caught:
        FeedbackTokens([NEW, weak])
    assert not weak or str(weak) not in str(caught.value)


@pytest.mark.parametrize("keys", [[], (), NEW, NEW.encode()])
def test_keys_are_a_list_with_one_at_least(keys):
    with pytest.raises(ValueError, match="list of secrets"):
        FeedbackTokens(keys)


def test_no_secret_is_shown_by_repr():
    assert NEW not in repr(tokens)


def test_keys_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_KEYS", f" {NEW} ,\n{OLD},")
    found = FeedbackTokens.from_env()
    assert found.issue(TRACE, now=NOW) == tokens.issue(TRACE, now=NOW)
    assert found.read(FeedbackTokens([OLD]).issue(TRACE)).subject == TRACE


def test_a_weak_key_of_the_environment_is_an_error(monkeypatch):
    monkeypatch.setenv("LANGCHAIN_FEEDBACK_KEYS", "secret")
    with pytest.raises(ValueError, match="weak"):
        FeedbackTokens.from_env()


def test_an_environment_without_keys_is_said_once(monkeypatch, caplog):
    monkeypatch.setenv("SOME_KEYS", " , ")
    with caplog.at_level(logging.WARNING):
        assert FeedbackTokens.from_env("SOME_KEYS") is None
        monkeypatch.delenv("SOME_KEYS")
        assert FeedbackTokens.from_env("SOME_KEYS") is None
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "SOME_KEYS is not set"
    ]


def test_the_errors_are_of_this_package_and_value_errors():
    assert issubclass(ExpiredTokenError, TokenError)
    assert issubclass(InvalidTokenError, TokenError)
    assert issubclass(TokenError, LangChainFeedbackError)
    assert issubclass(TokenError, ValueError)


def test_the_form_stays_as_it_is():
    """Tokens that stand in transcripts and mails are to be read by the next release, too."""
    kept = "AQEBiQpdrJZ3S7zOswIJmoBXaiAXQI2kGBTtnUjna3Ml9XqLbRl34P-w5TuDAg"
    assert tokens.issue(TRACE, actor="ann", now=NOW) == kept
