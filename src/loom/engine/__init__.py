"""The engine: sessions that are kept, from a stored path down to a request and from an answer up
again.
"""
