//! `tenure completions`: what a shell needs to complete commands and options.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::say;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tenure completions bash >/etc/bash_completion.d/tenure
  tenure completions zsh >\"${fpath[1]}/_tenure\"
  tenure completions fish >~/.config/fish/completions/tenure.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::Cli::command(), "tenure", &mut script);
        say(String::from_utf8_lossy(&script).trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}
