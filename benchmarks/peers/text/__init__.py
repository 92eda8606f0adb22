"""Sequences of token ids, padded into batches, one file a peer: see ``benchmarks.peers.work`` for what each offers."""
