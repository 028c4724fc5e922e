//! Integration tests that run the program as its users do.

mod cli;
