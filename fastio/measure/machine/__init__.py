"""The machine: its disks, buses and GPUs, and how busy they are."""
