"""What is fastest on this machine: which settings of a loader, which decoder."""
