"""New fields of samples that a store holds, computed by a function of the user's."""
