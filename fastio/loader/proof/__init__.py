"""Receipts of epochs: what was handed out, summed up while it happens, and joined over ranks and restarts."""
