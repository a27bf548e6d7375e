"""What turns texts into vectors for search: the table that Loom ships, MiniLM, and any endpoint
that speaks the API of OpenAI.
"""
