"""The store's methods, one idea a module; `FeedbackStore` puts them together."""
