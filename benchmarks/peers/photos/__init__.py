"""Photos in random and in centred crops, one file a peer: see ``benchmarks.peers.work`` for what each offers."""
