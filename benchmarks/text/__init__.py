"""Trainings on text, compared with what people write for them: chats, preference pairs, token streams, sequences."""
