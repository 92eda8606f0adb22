"""Samples of many fields beside what people write for them: picture and mask, picture and caption."""
