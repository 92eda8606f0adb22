"""What is done with a packed store: unpacked, verified, compared, described, drawn."""
