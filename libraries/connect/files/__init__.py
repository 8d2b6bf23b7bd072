"""Files: CSV, JSON lines, Parquet; folders of finished files as output.

Enters: paths, patterns. Leaves: chunks with positions in files; files with a commit for each epoch.
"""
