//! A service whose numbers Prometheus scrapes: every one is read from `Elector::status` at the scrape.
//!
//!     DATABASE_URL=postgres://app@localhost/app cargo run --example prometheus -- 127.0.0.1:9184
//!
//! The rules that wake somebody up. The times are for the default timings: a lease of 15 s, of which a term uses
//! 13.5 s and a healthy leader renews when 8.5 s of them are left.
//!
//! ```yaml
//! groups:
//! - name: tenure
//!   rules:
//!   - alert: NobodyLeads                # no hand-over takes that long
//!     expr: max by (election) (tenure_leader) == 0
//!     for: 1m
//!   - alert: RenewalsComeLate           # one more failure like this, and the term is over
//!     expr: tenure_leader == 1 and tenure_headroom_seconds < 5
//!   - alert: StoreFails
//!     expr: increase(tenure_failures_total[5m]) > 3
//!   - alert: SomebodyMustMendSomething  # no right, no table, a wrong password
//!     expr: increase(tenure_failures_by_kind_total{kind="fatal"}[5m]) > 0
//!   - alert: WorkGoesOnAfterItsTerm     # somebody else may lead by now
//!     expr: tenure_overrun_seconds > 1
//!   - alert: TermsAreLost               # by whatever else than on purpose
//!     expr: sum by (election) (increase(tenure_losses_total{cause!~"resigned|stopped"}[1h])) > 2
//! ```

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tenure::{CampaignError, Config, Elector, PostgresStore, Role};
use tiny_http::{Header, Response, Server};

const OPEN_METRICS: &str = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reads the status at each scrape.
#[derive(Debug)]
struct Numbers(Elector);

/// Writes metrics of one election.
struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
    election: String,
}

impl Writer<'_> {
    /// A metric with one sample for each value of the label; `("", "")` is no label.
    fn metric<M: EncodeMetric>(
        &mut self,
        (name, help, unit): (&str, &str, Option<&Unit>),
        samples: impl IntoIterator<Item = ((&'static str, &'static str), M)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        let Some((_, first)) = samples.peek() else { return Ok(()) };
        let mut metric = self.encoder.encode_descriptor(name, help, unit, first.metric_type())?;
        for ((key, value), sample) in samples {
            let mut labels = vec![("election", self.election.clone())];
            if !key.is_empty() {
                labels.push((key, value.to_owned()));
            }
            sample.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn count(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric((name, help, None), [(("", ""), ConstCounter::new(value))])
    }

    fn counts<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        key: &'static str,
        values: [(&'static str, u64); N],
    ) -> fmt::Result {
        let samples = values.map(|(value, count)| ((key, value), ConstCounter::new(count)));
        self.metric((name, help, None), samples)
    }

    fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        self.metric((name, help, None), [(("", ""), ConstGauge::new(value))])
    }

    /// Without a sample where there is none.
    fn seconds(&mut self, name: &str, help: &str, value: Option<Duration>) -> fmt::Result {
        let sample = value.map(|value| (("", ""), ConstGauge::new(value.as_secs_f64())));
        self.metric((name, help, Some(&Unit::Seconds)), sample)
    }
}

impl Collector for Numbers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (now, election) = (self.0.status(), self.0.config().name().to_owned());
        let mut out = Writer { encoder, election };
        out.gauge("tenure_leader", "1 while this participant leads", i64::from(now.role == Role::Leader))?;
        out.gauge(
            "tenure_leader_known",
            "1 if somebody led by the last answer",
            i64::from(now.leader.is_some()),
        )?;
        out.gauge("tenure_fence", "The fence of its term; 0 without one", now.fence.map_or(0, |f| f.get()))?;
        out.seconds("tenure_in_role", "For how long it has had its role", Some(now.in_role))?;
        out.seconds("tenure_observed_age", "Since the store last answered", now.observed_age)?;
        out.seconds("tenure_remaining", "What is left of its term", now.remaining)?;
        out.seconds("tenure_renewed_age", "Since the last renewal was sent", now.renewed_age)?;
        out.seconds("tenure_headroom", "What was left when it was last renewed", now.headroom)?;
        out.seconds("tenure_least_headroom", "The least that ever was left", now.least_headroom)?;
        out.seconds("tenure_round_trip", "How long the last renewal took", now.round_trip)?;
        out.seconds("tenure_worst_round_trip", "How long the slowest renewal took", now.worst_round_trip)?;
        out.seconds(
            "tenure_overrun",
            "Work that goes on after its term",
            Some(now.overrun.unwrap_or_default()),
        )?;
        out.count("tenure_terms", "Terms led", now.terms)?;
        out.count("tenure_renewals", "Renewals that succeeded", now.renewals)?;
        let by = now.losses;
        let causes = [
            ("expired", by.expired),
            ("superseded", by.superseded),
            ("resigned", by.resigned),
            ("stopped", by.stopped),
            ("failed", by.failed),
        ];
        out.counts("tenure_losses", "Terms that ended", "cause", causes)?;
        let by = now.failures_by_operation;
        let operations =
            [("observe", by.observe), ("acquire", by.acquire), ("renew", by.renew), ("release", by.release)];
        out.counts("tenure_failures", "Calls to the store that failed", "operation", operations)?;
        let by = now.failures_by_kind;
        let kinds = [("timeout", by.timeout), ("retryable", by.retryable), ("fatal", by.fatal)];
        out.counts("tenure_failures_by_kind", "The same by what they were", "kind", kinds)?;
        out.count("tenure_clock_steps", "Steps of the database's clock", now.clock_steps)?;
        out.count("tenure_disturbances", "Records that went back, vanished or moved", now.disturbances)?;
        out.count("tenure_events_dropped", "Events that a slow reader missed", now.events_dropped)?;
        out.count("tenure_log_lines_dropped", "Log lines that a slow sink missed", now.log_lines_dropped)
    }
}

fn serve(server: &Server, registry: &Registry) {
    for request in server.incoming_requests() {
        let mut text = String::new();
        let outcome = match prometheus_client::encoding::text::encode(&mut text, registry) {
            Ok(()) => {
                let header: Header = OPEN_METRICS.parse().unwrap_or_else(|()| unreachable!("a header"));
                request.respond(Response::from_string(text).with_header(header))
            }
            Err(error) => request.respond(Response::from_string(error.to_string()).with_status_code(500)),
        };
        if let Err(error) = outcome {
            eprintln!("a scrape was not answered: {error}");
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to the PostgreSQL to use")?;
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9184".to_owned());
    let store = PostgresStore::connect(&url)?;
    store.ensure_schema()?;
    let elector = Elector::start(store, Config::builder("example-prometheus").build()?)?;

    let mut registry = Registry::default();
    registry.register_collector(Box::new(Numbers(elector.clone())));
    let server = Arc::new(Server::http(&address).map_err(|error| format!("{address}: {error}"))?);
    println!("metrics at http://{}/metrics", server.server_addr());
    let (scrapes, on_signal, mut signals) =
        (server.clone(), elector.clone(), Signals::new([SIGTERM, SIGINT])?);
    let scraped = thread::spawn(move || serve(&scrapes, &registry));
    thread::spawn(move || signals.forever().next().map(|_| on_signal.stop()));

    loop {
        let guard = match elector.wait_for_leadership() {
            Ok(guard) => guard,
            Err(CampaignError::Stopped) => break,
            Err(error) => return Err(error.into()),
        };
        println!("leading, fence {}", guard.fence());
        // The work; here it only waits for the end of its term.
        while guard.sleep(Duration::from_secs(1)).is_ok() {}
    }
    // Scraped to the end, so that the last numbers are seen; then the lease is released.
    elector.shutdown(Duration::from_secs(10))?;
    server.unblock();
    scraped.join().map_err(|_| "the server of the numbers panicked")?;
    println!("bye");
    Ok(())
}
