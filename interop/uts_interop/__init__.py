"""A second implementation of UTS, written from the pages in `spec/` alone."""
