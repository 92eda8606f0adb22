"""Other programs' containers as sources: what their kinds share."""
