"""Parts that families share: sizes, cost, embedding, feed-forward, head."""
