"""Reads TFRecord files of tf.train.Example, without TensorFlow."""
