"""Your own files without a key: read a folder, cut it into chunks, search it by words."""

from langchain_feedback.local.reading import ReadResult, read_file, read_folder
from langchain_feedback.local.splitting import split_sections
from langchain_feedback.local.tfidf import TfidfRetriever

__all__ = ["ReadResult", "TfidfRetriever", "read_file", "read_folder", "split_sections"]
