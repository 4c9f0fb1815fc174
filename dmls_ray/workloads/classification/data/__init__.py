"""Images on their way from files to batches: sources, the cache of decoded images, loaders and augmentation."""
