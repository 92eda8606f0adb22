"""Reading photos from a server that is far away, compared with LitData and WebDataset; a soak and a storm of faults."""
