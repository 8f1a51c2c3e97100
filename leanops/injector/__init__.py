"""Messages made up from a scenario, and what the tables must hold once they have landed."""
