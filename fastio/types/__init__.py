"""The types that all layers share: schemas, spans, counters, units."""
