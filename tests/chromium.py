"""Debian's Chromium, driven by Playwright, for tests of pages: it loads nothing from elsewhere.

```python
from tests.chromium import chromium

with chromium() as browser:
    page = browser.new_page()
```

Without Playwright or without the browser the test is skipped, and says why.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CHROMIUM", "chromium"]

CHROMIUM = Path(os.environ.get("LCF_CHROMIUM", "/usr/bin/chromium"))
"""Where the browser is; the variable `LCF_CHROMIUM` says otherwise."""

_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a running browser, `playwright.sync_api.Browser`, and close it in the end."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install playwright"
    )
    if not CHROMIUM.exists():
        pytest.skip(f"There is no Chromium at {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_OPTIONS)
        try:
            yield browser
        finally:
            browser.close()
