"""Input pipelines of whole trainings, compared with what people write for them: views, colours."""
