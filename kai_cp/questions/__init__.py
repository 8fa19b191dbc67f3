"""Questions about a cluster: each answer is a document with its own schema, and tables for people.

Every answer is made from two documents: ``decisions/1`` (the decisions) and ``inspection/1`` (queues, nodes,
waiting groups). One table entry adds a question to the command line and the kubectl plugin.
"""
