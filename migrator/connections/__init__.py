"""Connections to both servers: settings of a session, and the drivers' errors as errors of the tool."""
