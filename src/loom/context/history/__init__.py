"""Which part of a history goes into a request: strategies rank it, the gate lets it in, epochs go
on.
"""
