"""SQL over streams of columns: queries are compiled to the verbs of `Columns`."""
