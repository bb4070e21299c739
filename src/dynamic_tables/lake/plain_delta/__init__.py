"""Delta tables without Spark and Java: the log as the protocol describes it, rows with Arrow.

What is not known here is refused by name; nothing is guessed.
"""
