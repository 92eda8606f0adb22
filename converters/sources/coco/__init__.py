"""COCO's JSON of images, annotations and categories as a source."""
