"""What a machine and a training loop can do, measured."""
