"""What a session keeps beside its messages: working state, handoffs, partitions of the window."""
