"""Reading photos from a server that is far away, beside LitData and WebDataset; a soak and a storm of faults."""
