"""What people use without fastio, one file each, written as their own documentation recommends."""
