"""Files that other tools wrote: tar shards read and indexed where they lie, other libraries' datasets recognised."""
