"""``kubectl kai-cp``: every read-only command of ``kai-cp`` on the live cluster, exactly as on a file.

``take`` reads the cluster into a file: the last cycle of the running scheduler, or else the API server's
lists. ``main`` then runs the ordinary command on that file.
"""
