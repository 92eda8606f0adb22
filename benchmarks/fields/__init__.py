"""Samples of many fields, compared with what people write for them: picture and mask, picture and caption."""
