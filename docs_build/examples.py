"""Makes `Example:` of our docstrings the `Examples:` that Griffe knows as doctests."""

import re
from typing import Any

from griffe import Extension, Object


class Examples(Extension):
    """Without it the lines of an example are read as Markdown: as quotations and links."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rename the section of one object's docstring."""
        if obj.docstring:
            obj.docstring.value = re.sub(
                r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE
            )
