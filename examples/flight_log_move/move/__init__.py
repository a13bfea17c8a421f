"""The parts of the flight log move."""
