//! Integration tests: the program as its users run it.

mod cli;
