"""Token counting, model limits and prices, and the division of a window: pure functions over
values.
"""
