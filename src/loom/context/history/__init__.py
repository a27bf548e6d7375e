"""Which part of a history goes into a request: strategies rank it, the gate lets it in, covers and
summaries stand for the rest, epochs go on.
"""
