"""What counts as a yes, as a no, and as neither."""

import json
from types import MappingProxyType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_feedback.judges.verdict import Verdict, embedded_json, parse_verdict, reply_text
from tests.shared import HOSTILE, seconds, shared_rows

YES, NO, UNKNOWN = Verdict.YES, Verdict.NO, Verdict.UNKNOWN


def test_a01_all_shared_verdict_cases():
    rows = shared_rows("verdict_cases.jsonl")
    assert len(rows) >= 30
    wrong = [
        (row["id"], row["reply"], str(parse_verdict(row["reply"])))
        for row in rows
        if parse_verdict(row["reply"]) != (row["expect"] or "unknown")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Yes", YES),
        (" yes.", YES),
        ("**YES**", YES),
        ("No, this is about shipping", NO),
        ("Not relevant", NO),
        ("", UNKNOWN),
    ],
)
def test_a01_the_six_replies_of_the_reports(reply, expected):
    assert parse_verdict(reply) is expected


# -- A03: the shapes that content comes in

THINKING = {"type": "thinking", "thinking": "yes? no, it is about pricing", "signature": "x"}
REDACTED = {"type": "redacted_thinking", "data": "no no no"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "no"}]}
TOOL = {"type": "tool_use", "id": "1", "name": "no", "input": {"text": "no"}}


def block(words):
    return {"type": "text", "text": words}


@pytest.mark.parametrize("wrap", [AIMessage, list], ids=["message", "list"])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([THINKING, block("Ye"), block("s.")], "Yes."),
        ([REDACTED, block("Yes."), block(" It is there.")], "Yes. It is there."),
        ([REASONING, TOOL, block("yes")], "yes"),
        ([block("yes"), THINKING], "yes"),
        (["yes"], "yes"),
        (["y", block("es")], "yes"),
        ([THINKING], ""),
        ([REDACTED, TOOL], ""),
        ([], ""),
        ([block("")], ""),
    ],
)
def test_a03_the_text_blocks_are_joined_and_nothing_else_is_read(wrap, content, text):
    reply = wrap(content)
    assert reply_text(reply) == text
    assert parse_verdict(reply) is (YES if text else UNKNOWN)


@pytest.mark.parametrize(
    "content", [[{"type": "text", "text": None}], [{}], [None], [1], ["", {"text": "yes"}]]
)
def test_a03_blocks_of_no_known_shape_hold_no_verdict(content):
    assert parse_verdict(content) is UNKNOWN


@pytest.mark.parametrize(
    "reply",
    [
        "<think>Is it? no.</think>yes",
        "<THINKING>\nno\n</THINKING>\n\nyes",
        "<reasoning>no</reasoning> <thought>no</thought> yes",
        "Is it? no, no. </think> yes",
        AIMessage("<think>no</think>\nyes"),
        [THINKING, block("<think>no</think>yes")],
    ],
)
def test_a03_thinking_inside_the_text_is_no_verdict(reply):
    assert parse_verdict(reply) is YES


@pytest.mark.parametrize("reply", ["<think>yes", "<think>yes</think>", "<think>so: yes\nyes"])
def test_a03_thinking_alone_is_an_empty_reply(reply):
    assert reply_text(reply) == ""
    assert parse_verdict(reply) is UNKNOWN


# -- other shapes of one reply


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (True, YES),
        (False, NO),
        (None, UNKNOWN),
        ({"relevant": True}, YES),
        ({"relevant": False, "reason": "yes"}, NO),
        ({"Verdict": "No."}, NO),
        ({"binary_score": "No. It does not mention refunds."}, NO),
        ({"score": 1}, YES),
        ({"score": 0}, NO),
        ({"score": -1}, UNKNOWN),
        ({"score": 0.7}, UNKNOWN),
        ({"grounded": None}, UNKNOWN),
        ({"grounded": "yes", "relevant": "no"}, UNKNOWN),
        ({"note": "yes"}, UNKNOWN),
        ({}, UNKNOWN),
        ({1: "yes"}, UNKNOWN),
        (MappingProxyType({"verdict": "yes"}), YES),
        (HumanMessage("no"), NO),
    ],
)
def test_objects_and_booleans(reply, expected):
    assert parse_verdict(reply) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        # Marks around a verdict say nothing.
        ("(yes)", YES),
        ("[No]", NO),
        ("- yes", YES),
        ("| no |", NO),
        ("‘yes’", YES),
        ("«no»", NO),
        ("~~yes~~", YES),
        ("Yes ✅", YES),
        ("\ufeffno", NO),
        ("¡Sí!", YES),
        ("はい。", YES),
        # A verdict with its reason, before or behind.
        ("No — it lists fees", NO),
        ("No: it lists fees", NO),
        ("Yes (high confidence)", YES),
        ("It lists fees.\nNo.", NO),
        ("This is relevant.", YES),
        ("The answer is not grounded.", NO),
        ("No, it is relevant", UNKNOWN),
        ("Yes, but no", UNKNOWN),
        ("Correct, this is not relevant", UNKNOWN),
        # Labels.
        ("Reason: it lists fees. Verdict: no", NO),
        ("Based on the chunk, my answer: no", NO),
        ("Reason: Correct.\nAnswer: no", NO),
        ("Question: relevant?\nNo", NO),
        ("Relevant: Yes\nGrounded: No", UNKNOWN),
        ("Score: 1", YES),
        ("Score: 1/5", UNKNOWN),
        ("No.\nConfidence: 1", NO),
        ("No (confidence: 1)", NO),
        # A label whose value is missing or unclear is no verdict of its own.
        ("Relevant: unclear", UNKNOWN),
        ("Grounded: the answer invents a number", UNKNOWN),
        # A label that denies turns its value round.
        ("Irrelevant: no", UNKNOWN),
        ("Not grounded: false", UNKNOWN),
        ("Unsupported: none", UNKNOWN),
        ("Hallucinated: no", UNKNOWN),
        ("Not relevant: it is about fees", NO),
        ("Partially supported: yes", UNKNOWN),
        # Words that only begin like one.
        ("None", UNKNOWN),
        ("Now it is clear.", UNKNOWN),
        ("No. 5 of the list", UNKNOWN),
        ("No doubt about it", UNKNOWN),
        ("Yesterday it was.", UNKNOWN),
        ("true positive", UNKNOWN),
        # A list's number is no verdict.
        ("1. It lists fees\n2. It lists plans", UNKNOWN),
        # Cut off by a limit of tokens: the reason's first word is not the verdict.
        ('{"reason": "Yes, the chunk is about fees, not refunds", "relevant": fal', UNKNOWN),
        ('{"reason": "No fee is named, but the window is", "relevant": tr', UNKNOWN),
    ],
)
def test_replies_that_models_write(reply, expected):
    assert parse_verdict(reply) is expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('The verdict is below.\n{"binary_score": "no"}\nHope it helps!', NO),
        ('```json\n{"Relevant": true}\n```', YES),
        ('No. {"relevant": false}', NO),
        ('Yes. It holds {"root": 1}.', YES),
        ('No. The chunk only says {"relevant": true}.', UNKNOWN),
        ("No. It holds {question} and {0}.", NO),
        ('[{"verdict": "yes"}]', YES),
        ("{}", UNKNOWN),
    ],
)
def test_a11_json_beside_a_verdict_may_be_an_echo_and_never_overrules_it(reply, expected):
    assert parse_verdict(reply) is expected


def test_the_first_object_is_found_fenced_or_not():
    assert embedded_json('say ```json\n{"a": {"b": 1}}\n``` {"c": 2}') == {"a": {"b": 1}}
    assert embedded_json('{"a": ') is None
    assert embedded_json("none") is None


# -- properties

CLEAR = {
    "yes": YES,
    "Yes": YES,
    "TRUE": YES,
    "relevant": YES,
    "Fully supported": YES,
    "ja": YES,
    "是": YES,
    "no": NO,
    "No": NO,
    "false": NO,
    "Not relevant": NO,
    "IRRELEVANT": NO,
    "partially": NO,
    "nein": NO,
    "否": NO,
}
MARKS = ["{}", "{}.", "{}!", '"{}"', "({})", "{}…", "{},"]
MARKDOWN = ["{}", "**{}**", "_{}_", "`{}`", "# {}", "> {}", "- {}", "```\n{}\n```", "~~{}~~"]
LABELS = ["{}", "Answer: {}", "Verdict: {}", "binary_score = {}", "**Final answer:** {}"]
OBJECTS = [
    str,
    lambda text: json.dumps({"binary_score": text}),
    lambda text: "```json\n" + json.dumps({"reason": "It says so.", "verdict": text}) + "\n```",
    lambda text: "Here it is:\n" + json.dumps({"grade": text}, indent=2),
]
THOUGHTS = ["{}", "<think>yes, or no? yes. no.</think>\n{}", "Hm, no? Yes!</thinking> {}"]
SPACE = ["{}", "  {}\n", "\n\n{}\r\n\r\n", "\t{}\u00a0", "\u2003{}\u2028"]


@given(
    st.sampled_from(sorted(CLEAR)),
    *(st.sampled_from(layer) for layer in (MARKS, MARKDOWN, LABELS, OBJECTS, THOUGHTS, SPACE)),
)
def test_wrapping_a_clear_verdict_keeps_it(word, mark, markdown, label, as_object, thought, space):  # noqa: PLR0917
    text = label.format(markdown.format(mark.format(word)))
    text = space.replace("{}", thought.replace("{}", as_object(text)))
    for reply in (text, AIMessage(text), [THINKING, block(text)]):
        assert parse_verdict(reply) is CLEAR[word], text


UNCLEAR = [
    *("yes and no", "yes/no", "Not sure", "", "null", "maybe", "It depends", "Hm"),
    *("Nothing in the document helps", "I'm sorry, but I can't help with that", "Notably so"),
    *("Unclear", "I cannot say", "None", "Both", "Neither", "yes or no", "Yes. No"),
]
punctuation = st.text("., ;:!?*_`'\"()[]-–—…~#>\n", max_size=4)


@given(st.sampled_from(UNCLEAR), punctuation, punctuation)
def test_an_unknown_stays_unknown_when_punctuation_is_added(reply, before, behind):
    assert parse_verdict(before + reply + behind) is UNKNOWN


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
words = st.sampled_from([*CLEAR, *UNCLEAR, ":", "\n", "{", '{"verdict":', "}", "</think>", "1"])
noise = st.text() | st.lists(words, max_size=12).map(" ".join)
named = st.sampled_from(["verdict", "score", "relevant", "Grounded", "reason"])
replies = st.one_of(
    noise,
    json_values,
    st.dictionaries(named, json_values),
    st.dictionaries(named, noise).map(json.dumps),
    st.lists(noise | st.fixed_dictionaries({"type": st.just("text"), "text": noise})),
    noise.map(AIMessage),
)


@given(replies)
@example("\ud800")
@example('{"score": NaN}')
@example('{"score": ' + "9" * 5000 + "}")
@example([{"type": "text"}])
@example(object())
def test_any_reply_has_a_verdict_and_none_raises(reply):
    assert parse_verdict(reply) in set(Verdict)
    assert isinstance(reply_text(reply), str)


@given(noise)
def test_a_verdict_is_the_same_in_any_case_and_shape(text):
    verdict = parse_verdict(text)
    assert parse_verdict(AIMessage(text)) is verdict
    assert parse_verdict([text]) is verdict
    assert parse_verdict(f" \n{text}\n") is verdict


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("around", ["{}", "Yes. {}", "{}\nno", "Verdict: {}"])
def test_hostile_and_long_replies_take_linear_time(name, around):
    reply = around.replace("{}", HOSTILE[name])
    assert seconds(lambda: parse_verdict(reply)) < 2


@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_deeply_nested_json_is_unknown(depth):
    assert parse_verdict('{"a":' * depth) is UNKNOWN
    assert parse_verdict('{"verdict": ' + "[" * depth + "]" * depth + "}") is UNKNOWN


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Yes. The answer only uses information from the chunks.", "yes"),
        ("Yes, but the 41 days are wrong.", "unknown"),
        ("Grounded: yes, but the 41 days are unsupported.", "unknown"),
        ("Answer: yes. However, 41 is not in the chunks.", "unknown"),
        ("Contradiction: yes", "unknown"),
        ("The chunk isn't relevant.", "no"),
        ("Not relevant because it is about shipping.", "no"),
    ],
)
def test_a01_half_a_yes_is_none(reply, verdict):
    assert parse_verdict(reply) == verdict


def test_a03_an_answer_about_thinking_tags_is_not_cut():
    answer = "Put the reasoning in <thinking> tags, then give the result."
    assert reply_text(answer) == answer
    assert reply_text("<think>Hm.</think>\nDone.") == "Done."
    assert reply_text("Hm, well.\n</think>\nDone.") == "Done."
