"""Trees of messages: nodes that never change, paths, and what records say of them."""
