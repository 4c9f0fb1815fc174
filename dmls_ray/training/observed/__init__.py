"""Parts of the observer of training code: steps, batches, inputs of models, losses, tests, and what they say."""
