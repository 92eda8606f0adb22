"""What a path is that nobody packed yet: the kinds of sources, and the signs by which each is recognised."""
