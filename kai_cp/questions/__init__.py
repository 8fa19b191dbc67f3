"""Questions that people ask of a cluster: each is a document with a schema of its own, and tables for people.

Every answer is made of two documents: ``decisions/1`` (what was decided) and ``inspection/1`` (queues,
nodes, what waits). A command, and the kubectl plugin, are one entry of a table away.
"""
