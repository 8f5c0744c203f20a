"""What was released: for each version its schema with data, and the code that wrote it.

`python -m tests.store.released 0.2.0` adds one, when a version is tagged.
"""
