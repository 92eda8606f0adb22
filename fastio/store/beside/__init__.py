"""Fields that come later: stores of the same samples, read as one."""
