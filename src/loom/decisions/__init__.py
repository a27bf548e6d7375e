"""The decision graph: goals, decisions, options, actions, outcomes, observations and revisits, and
what is computed of them.
"""
