"""Figures: panels on sheets, drawn by matplotlib."""
