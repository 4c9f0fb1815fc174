"""TensorBoard event files of a sweep."""
