"""Models to send a request to: the scripted one for tests, and what providers say when a request is
too long.
"""
