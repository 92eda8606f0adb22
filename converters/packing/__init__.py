"""Packs a source into one store or a set of shards: by plan, in parts, going on, appended to, mended."""
