"""The sentence that answers the question of a sweep."""
