"""What a session keeps besides its messages: working state, handoffs, partitions of the window."""
