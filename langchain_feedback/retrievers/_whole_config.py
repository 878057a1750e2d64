"""What our retrievers share that call others: the whole config of a run reaches those below."""

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import patch_config

__all__ = ["WholeConfig", "child_config"]

_CONFIG = "_feedback_config"


class WholeConfig(BaseRetriever):
    """Hands the config of a call to its own hook, which LangChain tells of the callbacks only."""

    def invoke(
        self,
        input: str,  # noqa: A002  LangChain's own name
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Retrieve; see `BaseRetriever.invoke`.

        Raises:
            ValueError: If `k` is below 1.
        """
        return super().invoke(input, config, **kwargs, **{_CONFIG: ensure_config(config)})

    async def ainvoke(
        self,
        input: str,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Retrieve without blocking the event loop; otherwise the same as `invoke`."""
        return await super().ainvoke(input, config, **kwargs, **{_CONFIG: ensure_config(config)})


def child_config(
    options: dict[str, Any],
    manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun,
) -> RunnableConfig:
    """Take the run's config out of the options of a hook, for runs below this one."""
    return patch_config(options.pop(_CONFIG, None), callbacks=manager.get_child())
