"""The command line: `langchain-feedback demo` and `langchain-feedback ask`."""
