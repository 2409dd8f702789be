"""One question per file: the docstring holds the question, the prediction and the cost; a constant holds the grid."""
