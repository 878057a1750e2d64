"""Take the pictures of the review pages that the documentation shows.

    python docs_build/screenshots.py

It needs Chromium, Playwright and the extras `server` and `demo`. The pages of review are filled
with a short history over the demo's handbook, those of health and rankers by the lab's weeks.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeAlias

import uvicorn
from playwright.sync_api import Browser, Page, ViewportSize
from sqlalchemy import select, update

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from langchain_feedback import FeedbackStore  # noqa: E402
from langchain_feedback.demo.four_weeks import run_four_weeks  # noqa: E402
from langchain_feedback.demo.handbook import handbook_documents  # noqa: E402
from langchain_feedback.loop.corrections import Corrections  # noqa: E402
from langchain_feedback.loop.mining import mine  # noqa: E402
from langchain_feedback.loop.missing import missing_documents  # noqa: E402
from langchain_feedback.loop.owners import Owner, Owners  # noqa: E402
from langchain_feedback.loop.review import ReviewQueue  # noqa: E402
from langchain_feedback.server.app import create_app  # noqa: E402
from langchain_feedback.store.schema import traces  # noqa: E402
from langchain_feedback.store.transactions import writing  # noqa: E402
from tests.chromium import chromium  # noqa: E402

ASSETS = ROOT / "docs" / "assets"
Scheme: TypeAlias = Literal["light", "dark"]
WIDE, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=400, height=860)
LOOKS: tuple[tuple[str, ViewportSize, Scheme], ...] = (
    ("", WIDE, "light"), ("-dark", WIDE, "dark"), ("-phone", PHONE, "light"),
)  # fmt: skip
PAGES = ("queue", "clusters", "sources", "corrections")
LEARNED = ("health", "rankers")
BOOK = {document.id: document for document in handbook_documents()}
OWNERS = Owners([(Owner("Billing"), ["*refund*"])], default=Owner("Docs team"))
QUESTIONS = {
    "How long does a refund take?": ("refund-window", "cancel", "refund-timing"),
    "When is my money back?": ("refund-window", "refund-timing", "cancel"),
    "Is there a credit if my server has an outage?": ("incidents", "sla", "sizing"),
    "Can I export after I cancel?": ("cancel", "export", "retention"),
}


def history(store: FeedbackStore) -> None:
    """Fill a store: some answers are good, some questions go wrong."""
    for number, (question, keys) in enumerate(QUESTIONS.items()):
        for time_asked in range(4):
            trace_id = f"t{number}-{time_asked}"
            found = [BOOK[key] for key in keys]
            answer = f"{found[0].page_content} Please write to us."
            store.record_trace(trace_id, question, found, actor=f"u{time_asked}", answer=answer)
            grades = {keys[0]: "yes", keys[-1]: "no"}
            store.update_trace(
                trace_id, status="answered", grounded=True, cited=[keys[0]], grades=grades
            )
            bad = number < 3 and time_asked < 3  # noqa: PLR2004
            store.rate(
                trace_id, 1 if bad else 5, comment="That is not what I asked." if bad else None
            )
    store.record_trace("gift", "Do you sell gift cards?", [], actor="u9")
    store.update_trace("gift", status="abstained", reason="no_documents")
    grow_old(store)
    missing_documents(store, owners=OWNERS)
    mine(store)
    queue = ReviewQueue(store, double=0, owners=OWNERS)
    item = queue.claim("Ben")
    queue.decide(item, "confirm", right_chunks=[item.snapshot["chunks"][-1]["chunk_id"]],
                 correction="The money is back within five working days of approval.",
                 failure_class="stale_document")  # fmt: skip
    [first, *_] = Corrections(store).items(kind="correction")
    Corrections(store).move(first.item_id, "acknowledged", actor="Billing")


def grow_old(store: FeedbackStore) -> None:
    """Spread what was asked over the last days."""
    now = datetime.now(UTC)
    with writing(store) as (connection, _):
        for number, row in enumerate(connection.execute(select(traces.c.trace_id)).all()):
            then = now - timedelta(hours=3 + 9 * (number % 12))
            this = update(traces).where(traces.c.trace_id == row.trace_id)
            connection.execute(this.values(created_at=then))


@contextmanager
def served(store: FeedbackStore) -> Iterator[str]:
    """Serve the pages on a free port."""
    config = uvicorn.Config(
        create_app(store, owners=OWNERS), host="127.0.0.1", port=0, log_level="warning"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def signed_in(browser: Browser, url: str, viewport: ViewportSize, scheme: Scheme) -> Page:
    """Return a page whose visitor gave his name."""
    page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
    page.goto(f"{url}/login")
    page.fill("#name", "Ann")
    page.click("text=Begin")
    page.wait_for_url("**/queue*")
    return page


def review_pictures(browser: Browser, folder: Path) -> None:
    """Take the pictures of review."""
    with FeedbackStore(f"sqlite:///{folder / 'feedback.db'}") as store:
        history(store)
        with served(store) as url:
            for name, viewport, scheme in LOOKS:
                page = signed_in(browser, url, viewport, scheme)
                for shown in PAGES if not name else PAGES[:1]:
                    page.goto(f"{url}/{shown}")
                    page.screenshot(path=ASSETS / f"review-{shown}{name}.png")
                page.context.close()


def learned_pictures(browser: Browser, folder: Path) -> None:
    """Take the pictures of what four weeks of the lab taught."""
    database = folder / "weeks.db"
    run_four_weeks(database=database)
    with FeedbackStore(f"sqlite:///{database}") as store, served(store) as url:
        for name, viewport, scheme in LOOKS:
            page = signed_in(browser, url, viewport, scheme)
            for shown in LEARNED if not name else LEARNED[:1]:
                page.goto(f"{url}/{shown}")
                page.screenshot(path=ASSETS / f"{shown}{name}.png", full_page=viewport is WIDE)
            page.context.close()


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        review_pictures(browser, Path(folder))
        learned_pictures(browser, Path(folder))


if __name__ == "__main__":
    main()
