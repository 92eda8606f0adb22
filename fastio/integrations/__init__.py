"""FastLoader under the trainers of others: Lightning, accelerate, transformers, each imported by its adapter."""
