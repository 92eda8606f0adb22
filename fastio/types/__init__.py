"""The types that every layer shares: schemas, spans, counters, units."""
