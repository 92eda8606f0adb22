"""Packing by plan: a source is divided into shards before anything is packed, and each shard can be made alone."""
