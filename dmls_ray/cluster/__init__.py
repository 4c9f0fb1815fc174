"""Ray: where the ranks of a sweep live, and who hands them their runs."""
