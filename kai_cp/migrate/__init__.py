"""From KAI's Config, shards and Helm values to ours: what to install, what differs, what is left."""
