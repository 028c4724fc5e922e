//! `lend-api-servers SOCKET`: lends API servers to the tests of other processes, until its standard input is closed.

use std::env;
use std::io::{self, Read};

use anyhow::{Context, Result};
use calipam_testkit::kube::lend;

fn main() -> Result<()> {
    let socket = env::args_os().nth(1).context("the path of a socket is missing")?;
    lend(socket.as_ref())?;
    println!("ready");
    // The process that has started this one keeps the pipe open as long as its tests run.
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
