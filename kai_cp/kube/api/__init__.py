"""The API server from this side: transport, stores, watches, rights, leases, objects as written."""
