"""Parts that every family shares: sizes, closed-form cost, embedding, feed-forward, head."""
