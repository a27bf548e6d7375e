"""Commands about what a request holds: weave, explain, replay, budget, count, map, recall."""
