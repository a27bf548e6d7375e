"""Documents of a project: what was added, its chunks, and the index that finds them.

Rules of this folder:
- A base is all that a project has, of one tenant. Every statement names its base.
- A chunk is stored once for each base, also if several documents say the same. It goes with the
  last document that has it.
- The terms and the vectors of chunks are derived. They can be made again at any time.
"""
