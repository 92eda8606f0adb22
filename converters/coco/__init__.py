"""COCO's JSON of images, annotations and categories as samples, and written again from them."""
