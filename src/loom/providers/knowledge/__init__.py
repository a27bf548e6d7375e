"""Knowledge bases: what an agent may look up, by words and by meaning.

Anything with `query(text, limit=…)` is a knowledge base, `async` or not.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom.providers.knowledge.asking import DEFAULT_SECONDS as DEFAULT_SECONDS
    from loom.providers.knowledge.asking import MAX_ITEMS as MAX_ITEMS
    from loom.providers.knowledge.asking import Findings as Findings
    from loom.providers.knowledge.asking import KnowledgeBase as KnowledgeBase
    from loom.providers.knowledge.asking import ask_bases as ask_bases
    from loom.providers.knowledge.asking import check_bases as check_bases
    from loom.providers.knowledge.documents.chunks import Chunk as Chunk
    from loom.providers.knowledge.documents.reading import ParsedDocument as ParsedDocument
    from loom.providers.knowledge.documents.reading import read_document as read_document
    from loom.providers.knowledge.items import KnowledgeItem as KnowledgeItem
    from loom.providers.knowledge.items import cite as cite
    from loom.providers.knowledge.sections import find_cited as find_cited
    from loom.providers.knowledge.sections import is_cited as is_cited
    from loom.providers.knowledge.sections import to_sections as to_sections
    from loom.providers.knowledge.stored import AddedDocuments as AddedDocuments
    from loom.providers.knowledge.stored import FailedDocument as FailedDocument
    from loom.providers.knowledge.stored import StoredKnowledgeBase as StoredKnowledgeBase
    from loom.providers.knowledge.text_base import TextKnowledgeBase as TextKnowledgeBase
    from loom.providers.knowledge.vector_base import EmbeddingProvider as EmbeddingProvider
    from loom.providers.knowledge.vector_base import VectorKnowledgeBase as VectorKnowledgeBase
    from loom.providers.knowledge.vectors.memory import MemoryVectorStore as MemoryVectorStore
    from loom.providers.knowledge.vectors.pgvector import PgVectorStore as PgVectorStore
    from loom.providers.knowledge.vectors.sqlite import SqliteVectorStore as SqliteVectorStore
    from loom.providers.knowledge.vectors.store import VectorHit as VectorHit
    from loom.providers.knowledge.vectors.store import VectorStore as VectorStore
else:
    from loom.doors import open_door

    __getattr__, __dir__, __all__ = open_door(
        __name__,
        {
            "asking": (
                "DEFAULT_SECONDS",
                "Findings",
                "KnowledgeBase",
                "MAX_ITEMS",
                "ask_bases",
                "check_bases",
            ),
            "documents.chunks": ("Chunk",),
            "documents.reading": ("ParsedDocument", "read_document"),
            "items": ("KnowledgeItem", "cite"),
            "sections": ("find_cited", "is_cited", "to_sections"),
            "stored": ("AddedDocuments", "FailedDocument", "StoredKnowledgeBase"),
            "text_base": ("TextKnowledgeBase",),
            "vector_base": ("EmbeddingProvider", "VectorKnowledgeBase"),
            "vectors.memory": ("MemoryVectorStore",),
            "vectors.pgvector": ("PgVectorStore",),
            "vectors.sqlite": ("SqliteVectorStore",),
            "vectors.store": ("VectorHit", "VectorStore"),
        },
    )
