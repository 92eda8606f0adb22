"""TFRecord files of tf.train.Example as a source, read without TensorFlow."""
