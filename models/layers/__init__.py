"""The parts that all families share: sizes, cost, embedding, feed-forward, head."""
