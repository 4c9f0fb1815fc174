"""From records to answers; imports neither PyTorch nor Ray."""
