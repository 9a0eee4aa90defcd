"""Retrieval: index folders built from corpora, plain search by BM25, vectors or both, and logical search."""

from serving.retrieval.index import Index
from serving.retrieval.index_folder import INDEX, IndexSettings
from serving.retrieval.indexing import build_index, update_index
from serving.retrieval.retriever import LocalRetriever
from serving.retrieval.words import ASKING_WORDS, STOP_WORDS, extract_query_terms, extract_terms

__all__ = [
    "ASKING_WORDS",
    "INDEX",
    "STOP_WORDS",
    "Index",
    "IndexSettings",
    "LocalRetriever",
    "build_index",
    "extract_query_terms",
    "extract_terms",
    "update_index",
]
