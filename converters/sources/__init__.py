"""The kinds of sources, one file each; ``fastio.converters.SOURCES`` lists them."""
