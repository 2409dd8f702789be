"""Operators written for one device, beside the formulations in plain torch that they must equal. Importing it needs no compiler of them."""
