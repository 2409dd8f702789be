"""Turn the results of a run into tables, figures, Markdown and HTML."""
