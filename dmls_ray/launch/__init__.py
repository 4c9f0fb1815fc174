"""How ranks come to be without Ray: the same training function, in this process or in fresh ones."""
