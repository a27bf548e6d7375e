"""The index of a store: which messages have which terms, kept in segments beside the nodes.

Rules of this folder:
- The index is derived from the nodes. It can be dropped and built again at any time.
- A segment holds up to MAX_SEGMENT_DOCUMENTS messages of one project, oldest first. It is written
  once. Segments of one size are merged into a larger one. Only a purge changes a segment.
- A line is a node and those that continue it, each as the first child of the one before. A path is
  a few stretches of lines, so that a fork copies nothing in the index either.
- What is not indexed yet is read from the nodes, at most MAX_TAIL_DOCUMENTS of them.
- Both databases keep the same segments, and everything is computed from these in Python. So they
  find the same.
"""
