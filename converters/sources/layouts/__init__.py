"""Datasets in the layouts that people have: pictures, and files beside them that say what is in them."""
