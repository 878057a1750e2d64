"""Owners are told once a week: digests, signed webhooks on a real server, files."""

import email
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from email.policy import default
from multiprocessing import get_context

import pytest

from langchain_feedback import FeedbackStore
from langchain_feedback.loop.corrections import Corrections
from langchain_feedback.loop.outbox import Delivered, deliver, write_digests
from langchain_feedback.loop.owners import Owner, Owners
from langchain_feedback.loop.webhooks import verify_signature
from langchain_feedback.store.deliveries import claim_delivery, read_deliveries, settle_delivery
from langchain_feedback.store.owner_items import open_item
from langchain_feedback.store.transactions import reading, writing
from tests.webhook_server import WebhookServer

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)  # a Monday
SECRET = "s3cret"  # noqa: S105  of tests
LEASE = timedelta(minutes=5)
HOSTILE = "```\n@everyone <script>alert(1)</script> ````"


def opened(store, about="one", source="refund.md", text="It is 30 days.", **fields):
    with writing(store) as (connection, _):
        item_id, _ = open_item(
            connection, store.namespace, about=about, kind="correction", now=NOW, text=text,
            question="How long?", source=source, chunk_id="refund", content_hash="ab",
            opened_by="ann", trace_id="t1",
            snapshot={
                "answer": "14 days.",
                "chunks": [{"chunk_id": "refund", "content_hash": "ab", "text": "Within 14 days.",
                            "heading": "Refunds", "source": source}],
            },
            **fields,
        )  # fmt: skip
    return item_id


def owners(channel="webhook", address="", secret=SECRET, name="billing"):
    return Owners([(Owner(name, channel, address, secret, "BILLING_SECRET"), ["refund*"])])


def told(store):
    with reading(store) as connection:
        return read_deliveries(connection, store.namespace)


def once(store, who, folder=None, at=NOW, **options):
    options = {"pauses": (), "timeout_s": 5} | options
    return deliver(store, who, folder=folder, now=at, **options)


def test_one_digest_for_each_owner_and_week(store):
    first = opened(store)
    assert write_digests(store, owners(), now=NOW) == 1
    second = opened(store, "two")
    assert write_digests(store, owners(), now=NOW + timedelta(days=6)) == 0
    assert write_digests(store, owners(), now=NOW + timedelta(days=7)) == 1
    newest, oldest = told(store)
    assert oldest.payload == {"week": "2026-W49", "items": [first], "in_all": 1}
    assert newest.payload["week"] == "2026-W50"
    assert set(newest.payload["items"]) == {first, second}
    assert Corrections(store).item(first).owner == "billing"


def test_who_acknowledged_everything_is_left_in_peace_until_something_happens(store):
    corrections, item_id = Corrections(store), opened(store)
    corrections.move(item_id, "acknowledged", now=NOW)
    assert write_digests(store, owners(), now=NOW + timedelta(hours=1)) == 1
    assert write_digests(store, owners(), now=NOW + timedelta(days=7)) == 0
    corrections.move(item_id, "fixed", now=NOW + timedelta(days=8))
    corrections.move(item_id, "verified", now=NOW + timedelta(days=8))
    assert write_digests(store, owners(), now=NOW + timedelta(days=14)) == 1
    assert write_digests(store, owners(), now=NOW + timedelta(days=21)) == 0


def test_what_nobody_owns_or_was_withdrawn_is_told_to_nobody(store):
    opened(store, "two", source="keys.md")
    Corrections(store).move(opened(store), "withdrawn")
    assert write_digests(store, owners(), now=NOW) == 0
    assert write_digests(store.scoped("other"), owners(), now=NOW) == 0
    assert write_digests(store, Owners(default=Owner("docs")), now=NOW) == 1


def test_a_webhook_is_signed_and_retried_check12(store):
    item_id = opened(store)
    with WebhookServer(SECRET, [500, 503, 200]) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        assert once(store, who, pauses=(0,)) == Delivered(sent=0, failed=0, waiting=1)
        assert once(store, who, at=NOW + timedelta(seconds=59)).sent == 0
        assert len(server.received) == 2
        assert once(store, who, at=NOW + timedelta(minutes=1)) == Delivered(1, 0, 0)
        assert once(store, who, at=NOW + timedelta(days=1)) == Delivered(0, 0, 0)
        assert [one.status for one in server.received] == [500, 503, 200]
    [delivery] = told(store)
    assert (delivery.state, delivery.attempts, delivery.error) == ("sent", 2, None)
    last = server.received[-1]
    assert verify_signature(last.headers["X-Feedback-Signature"], last.body, SECRET)
    assert not verify_signature(last.headers["X-Feedback-Signature"], last.body, "other")
    assert {one.headers["Idempotency-Key"] for one in server.received} == {delivery.delivery_id}
    assert last.json["week"] == "2026-W49"
    [told_item] = last.json["items"]
    assert told_item["item_id"] == item_id
    assert (told_item["says"], told_item["would_be_right"]) == (
        "Within 14 days.",
        "It is 30 days.",
    )
    assert b"ann" not in last.body


def test_another_secret_is_refused_and_not_tried_again(store):
    opened(store)
    with WebhookServer("other") as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        assert once(store, who, pauses=(0, 0)) == Delivered(sent=0, failed=1, waiting=0)
        assert len(server.received) == 1
    [delivery] = told(store)
    assert (delivery.state, delivery.error) == ("failed", "HTTP 401 Unauthorized")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_what_may_pass_waits(store, status):
    opened(store)
    with WebhookServer(SECRET, [status]) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        assert once(store, who) == Delivered(sent=0, failed=0, waiting=1)
    [delivery] = told(store)
    assert delivery.error.startswith(f"HTTP {status}")
    assert delivery.next_at == NOW + timedelta(minutes=1)


def test_waits_double_up_to_six_hours_and_end(store):
    opened(store)
    who, at, waits = owners(address="http://127.0.0.1:9/hook"), NOW, []
    write_digests(store, who, now=NOW)
    while told(store)[0].state == "waiting":
        assert once(store, who, at=at).sent == 0
        [delivery] = told(store)
        waits.append((delivery.next_at - at) / timedelta(minutes=1))
        at = delivery.next_at
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360, 360]
    assert "ConnectError" in told(store)[0].error


def test_a_receiver_may_ask_for_more_time_within_bounds(store):
    opened(store)
    with WebhookServer(
        SECRET, [(429, {"Retry-After": "600"}), (503, {"Retry-After": "9" * 400})]
    ) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        once(store, who, pauses=(0, 0))
        assert len(server.received) == 1
        assert told(store)[0].next_at == NOW + timedelta(minutes=10)
        once(store, who, at=NOW + timedelta(minutes=10))
        assert told(store)[0].next_at == NOW + timedelta(hours=6, minutes=10)


def test_redirects_are_not_followed(store):
    opened(store)
    with (
        WebhookServer(SECRET) as elsewhere,
        WebhookServer(SECRET, [(307, {"Location": "x"})]) as server,
    ):
        server.plan = [(307, {"Location": elsewhere.url})]
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        assert once(store, who) == Delivered(sent=0, failed=1, waiting=0)
        assert elsewhere.received == []
        assert elsewhere.url in told(store)[0].error


def test_a_receiver_that_hangs_costs_the_timeout_and_waits(store):
    opened(store)
    with WebhookServer(SECRET, ["hang"]) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        begun = time.monotonic()
        assert once(store, who, timeout_s=0.3) == Delivered(sent=0, failed=0, waiting=1)
        assert time.monotonic() - begun < 5
    assert "ReadTimeout" in told(store)[0].error


def test_without_the_secret_nothing_is_sent_and_nothing_is_lost(store, caplog):
    opened(store)
    with WebhookServer(SECRET) as server:
        write_digests(store, owners(address=server.url), now=NOW)
        nobody = owners(address=server.url, secret=None)
        assert once(store, nobody) == Delivered(sent=0, failed=0, waiting=1)
        assert server.received == []
        assert "BILLING_SECRET" in caplog.text
        assert once(store, owners(address=server.url)) == Delivered(sent=1, failed=0, waiting=0)


def test_a_new_address_counts_for_what_waits_and_who_died_is_followed(store):
    opened(store)
    write_digests(store, owners(address="http://127.0.0.1:9/old"), now=NOW)
    once(store, owners(address="http://127.0.0.1:9/old"))
    with WebhookServer(SECRET) as server:
        who = owners(address=server.url)
        assert once(store, who, at=NOW + timedelta(minutes=1)).sent == 1
    assert told(store)[0].address == server.url


def test_nothing_is_told_that_was_withdrawn_meanwhile(store):
    item_id = opened(store)
    with WebhookServer(SECRET) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)
        Corrections(store).move(item_id, "withdrawn")
        assert once(store, who) == Delivered(sent=0, failed=0, waiting=0)
        assert server.received == []


def test_an_outbox_is_a_file_of_lines(store, tmp_path):
    opened(store)
    who = owners("outbox", secret=None, name="../up")
    write_digests(store, who, now=NOW)
    assert once(store, who) == Delivered(sent=0, failed=0, waiting=1)
    folder = tmp_path / "deep" / "outbox"
    assert once(store, who, folder) == Delivered(sent=1, failed=0, waiting=0)
    opened(store, "two", text="Ünïcode\u2028")
    write_digests(store, who, now=NOW + timedelta(days=7))
    [path] = folder.iterdir()
    path.write_bytes(path.read_bytes() + b'{"torn')
    once(store, who, folder, NOW + timedelta(days=7))
    first, torn, second = path.read_bytes().decode().rstrip("\n").split("\n")
    assert json.loads(first)["week"] == "2026-W49"
    assert torn == '{"torn'
    assert {item["would_be_right"] for item in json.loads(second)["items"]} == {
        "It is 30 days.", "Ünïcode\u2028",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == [folder.parent] or (tmp_path / "feedback.db").exists()


def test_a_line_that_was_written_before_its_writer_died_is_not_written_again(store, tmp_path):
    opened(store)
    who = owners("outbox", secret=None)
    write_digests(store, who, now=NOW)
    once(store, who, tmp_path / "o")
    with writing(store) as (connection, _):
        connection.exec_driver_sql("UPDATE lcf_deliveries SET state = 'waiting'")
    assert once(store, who, tmp_path / "o", NOW + timedelta(minutes=5)).sent == 1
    assert len((tmp_path / "o" / "billing.jsonl").read_text().splitlines()) == 1


def test_a_mail_is_ready_to_send(store, tmp_path):
    opened(store, text="It is 30 days.\r\nBcc: eve@example.com")
    who = owners("email", "docs@example.com", None)
    write_digests(store, who, now=NOW)
    once(store, who, tmp_path / "o")
    [path] = (tmp_path / "o").iterdir()
    mail = email.message_from_bytes(path.read_bytes(), policy=default)
    assert path.suffix == ".eml"
    assert (mail["To"], mail["Subject"]) == (
        "docs@example.com", "Your documents: 1 correction (2026-W49)",
    )  # fmt: skip
    assert mail["Bcc"] is None
    body = mail.get_content()
    for part in ("How long?", "14 days.", "Within 14 days.", "It is 30 days.", "refund.md"):
        assert part in body


def test_an_issue_holds_words_of_others_as_text_only(store, tmp_path):
    opened(store, text=HOSTILE)
    who = owners("github", "org/docs", None)
    write_digests(store, who, now=NOW)
    once(store, who, tmp_path / "o")
    [path] = (tmp_path / "o").iterdir()
    lines = path.read_text().splitlines()
    assert path.suffix == ".md"
    [start, end] = [at for at, line in enumerate(lines) if line.startswith("`````")]
    inside = [at for at, line in enumerate(lines) if "@everyone" in line]
    assert start < inside[0] < end
    assert len(inside) == 1


def test_a_folder_that_cannot_be_written_waits(store, tmp_path):
    opened(store)
    who = owners("outbox", secret=None)
    write_digests(store, who, now=NOW)
    (tmp_path / "file").write_text("")
    assert once(store, who, tmp_path / "file") == Delivered(sent=0, failed=0, waiting=1)
    assert "could not be written" in told(store)[0].error


def _deliver(url, address):
    with FeedbackStore(url) as store:
        who = Owners(
            [(Owner(f"o{n}", "webhook", address, SECRET, "S"), [f"{n}/*"]) for n in range(12)]
        )
        return os.getpid(), deliver(store, who, folder=None, now=NOW, pauses=()).sent


def test_several_processes_send_each_digest_once(store, url):
    for n in range(12):
        opened(store, str(n), source=f"{n}/refund.md")
    with WebhookServer(SECRET, delay_s=0.1) as server:
        who = Owners(
            [(Owner(f"o{n}", "webhook", server.url, SECRET, "S"), [f"{n}/*"]) for n in range(12)]
        )
        assert write_digests(store, who, now=NOW) == 12
        with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
            runs = list(pool.map(_deliver, [url] * 3, [server.url] * 3))
        assert sum(sent for _, sent in runs) == 12
        assert len(server.received) == 12
        assert len({one.headers["Idempotency-Key"] for one in server.received}) == 12


def test_what_a_dead_process_claimed_is_sent_by_another_after_five_minutes(store, monkeypatch):
    opened(store)
    with WebhookServer(SECRET) as server:
        who = owners(address=server.url)
        write_digests(store, who, now=NOW)

        def die(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("langchain_feedback.loop.outbox.post_signed", die)
        with pytest.raises(KeyboardInterrupt):
            once(store, who)
        monkeypatch.undo()
        assert once(store, who, at=NOW + timedelta(minutes=4)).sent == 0
        assert once(store, who, at=NOW + timedelta(minutes=5)).sent == 1


def test_a_claim_that_ran_out_settles_nothing(store):
    opened(store)
    write_digests(store, owners(address="http://127.0.0.1:9/hook"), now=NOW)
    at = {"channel": "webhook", "address": "http://127.0.0.1:9/hook"}
    with writing(store) as (connection, _):
        late, quick = (
            claim_delivery(
                connection, store.namespace, owners=["billing"], now=now, until=now + LEASE
            )
            for now in (NOW, NOW + LEASE)
        )
        assert (late.attempts, quick.attempts) == (1, 2)
        assert not settle_delivery(connection, late, "failed", now=NOW, **at)
        assert settle_delivery(connection, quick, "sent", now=NOW, **at)
        assert not settle_delivery(connection, quick, "failed", now=NOW, **at)
    assert told(store)[0].state == "sent"
