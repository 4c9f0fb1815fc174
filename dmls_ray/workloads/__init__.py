"""What a rank runs: image classification, a user function or image conversion."""
