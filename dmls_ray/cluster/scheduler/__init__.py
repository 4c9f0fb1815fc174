"""The scheduler that assigns ranks to runs. Knows neither Ray nor PyTorch."""
