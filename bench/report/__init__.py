"""From a table to something a person reads: figures, Markdown, HTML."""
