"""Translates KAI's Config, shards and Helm values to ours: what to install, and what differs or is
dropped.
"""
