"""The page: a snapshot and the decisions on it, as pictures and tables.

``data`` makes the document ``view/1`` of a snapshot and a plan, ``page`` the HTML around it: one file without
any external request. The scheduler serves both, ``kai-cp view`` writes them as one file.
"""
