"""New fields of samples that a store holds, of another store or computed by a function of the user's."""
