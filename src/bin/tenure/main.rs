//! The command `tenure`: leadership for programs that are not written in Rust, and a look at elections for operators.
//!
//! Each command has a module of its own, which gets its options and gives back an exit code or a [`Failure`].

#![forbid(unsafe_code)]

mod completions;
mod doctor;
mod exec;
mod failure;
mod options;
mod output;
mod resign;
mod schema;
mod status;
mod view;
mod voice;
mod watch;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use failure::Failure;

/// Leader election over a database: exactly one of several processes acts at a time.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, max_term_width = 80, propagate_version = false)]
struct Cli {
    /// Log to stderr what happens; twice for more.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exec(Box<exec::Exec>),
    /// Print the SQL that creates the table, for a migration tool.
    Schema(schema::Schema),
    /// Create the table, and for SQLite the file, where it is missing.
    Init(schema::Init),
    /// Show who leads.
    Status(status::Status),
    /// Follow what changes: new terms, releases, expiries, failures.
    Watch(watch::Watch),
    /// Make the leader of an election step down.
    Resign(resign::Resign),
    /// Examine whether a database can carry elections, and say what to mend.
    Doctor(doctor::Doctor),
    /// Print what a shell needs to complete commands and options.
    Completions(completions::Completions),
}

/// For the last words, where somebody reads them.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let ended = run();
    voice::finish(LAST_WORDS);
    ended
}

fn run() -> ExitCode {
    if let Some(ended) = exec::inner() {
        return ended;
    }
    let cli = Cli::parse();
    start_logging(cli.verbose);
    let ended = match cli.command {
        Command::Exec(exec) => exec.run(),
        Command::Schema(schema) => schema.run(),
        Command::Init(init) => init.run(),
        Command::Status(status) => status.run(),
        Command::Watch(watch) => watch.run(),
        Command::Resign(resign) => resign.run(),
        Command::Doctor(doctor) => doctor.run(),
        Command::Completions(completions) => completions.run(),
    };
    ended.unwrap_or_else(|failure: Failure| failure.tell())
}

/// Log lines go to stderr, where `--verbose` or RUST_LOG asks for them; what they quote does not command a terminal, and
/// nobody waits for them to be read.
fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => "off",
        1 => "tenure=info",
        _ => "tenure=trace",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level))
        .format(|out, record| {
            let (at, level) = (out.timestamp_millis(), record.level());
            writeln!(out, "{at} {level:5} {}", output::printable(&record.args().to_string()))
        })
        .target(env_logger::Target::Pipe(Box::new(voice::Voice)))
        .init();
}
