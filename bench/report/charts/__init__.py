"""Draw a report's figures: sheets of panels, by matplotlib."""
