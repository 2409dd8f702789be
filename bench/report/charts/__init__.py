"""Figures: what a sheet shows, drawn by matplotlib and as interactive charts."""
