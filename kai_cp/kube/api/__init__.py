"""The client's side of the API server: transport, stores, watches, rights, leases, and the objects that are
written.
"""
