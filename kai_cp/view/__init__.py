"""The page: a snapshot and what was decided on it, to look at instead of to read.

``data`` makes the document ``view/1`` of a snapshot and a plan, ``page`` the HTML around it: one file without
any external request. The scheduler serves both, ``kai-cp view`` writes them as one file.
"""
