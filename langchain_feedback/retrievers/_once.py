"""Say a thing once, and not with every question."""

import logging

__all__ = ["Once"]


class Once:
    """Logs the first warning of each topic and drops the others.

    Example:
        >>> once = Once(logging.getLogger("example"))
        >>> once.warn("allow", "It failed: %s", "why"), once.warn("allow", "It failed: %s", "why")
        (True, False)
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._said: dict[str, object] = {}

    def warn(self, topic: str, message: str, *arguments: object) -> bool:
        """Log a warning, unless there was one of this topic; return whether it was logged."""
        mine = object()
        # One step, so that of two threads only one speaks.
        first = self._said.setdefault(topic, mine) is mine
        if first:
            self._logger.warning(message, *arguments)
        return first
