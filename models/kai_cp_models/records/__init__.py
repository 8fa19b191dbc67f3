"""API objects that rules read, as records, with their typed keys of ``Extras``.

One module for each reader of ``kai_cp/reader`` that fills it; no rule and no solver is loaded with them.
"""
