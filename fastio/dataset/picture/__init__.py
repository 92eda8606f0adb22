"""Lazy pictures: PIL images that decode, crop and resize in one native call when pixels are asked for."""
