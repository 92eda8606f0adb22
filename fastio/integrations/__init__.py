"""FastLoader in Lightning, accelerate and transformers. Each library is imported only by its adapter."""
