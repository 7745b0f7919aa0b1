"""The program file: the half of Mainstay that runs on hosts, as one file that needs nothing but Python there."""
