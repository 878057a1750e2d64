"""LangChain's record manager on the feedback store, for people's own calls of `index(...)`.

`store.record_manager("handbook")` makes one; it stands beside the tables that it writes.
"""

from langchain_feedback.store.record_manager import StoreRecordManager

__all__ = ["StoreRecordManager"]
