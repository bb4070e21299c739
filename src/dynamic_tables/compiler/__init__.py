"""Pure work on SQL text: references, pinning, fingerprints. No Spark, no I/O."""
