"""The plane as code: files and a server as documents of one form, their difference, and the requests that remove it."""
