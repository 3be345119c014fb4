use super::super::dsn::Dsn;
use super::*;
use postgres::NoTls;

const HOME: &str = "/nonexistent/home";

/// The modes of the ways that a connection string leads to: plain, or TLS with or without the right to do without.
fn ways(dsn: &str, variables: &[(&str, &str)]) -> Result<Vec<&'static str>, PostgresConfigError> {
    ways_with(dsn, variables, None)
}

fn ways_with(
    dsn: &str,
    variables: &[(&str, &str)],
    connector: Option<Arc<dyn Connector>>,
) -> Result<Vec<&'static str>, PostgresConfigError> {
    let environment = |variable: &str| {
        let found = variables.iter().find(|(name, _)| *name == variable);
        found.map(|(_, value)| OsString::from(value)).or_else(|| (variable == "HOME").then(|| HOME.into()))
    };
    let dsn = Dsn::parse(dsn, &environment, connector)?;
    let name = |way: Option<Encryption>| match way {
        None => "plain",
        Some(Encryption { optional: true, .. }) => "preferred",
        Some(Encryption { direct: true, .. }) => "direct",
        Some(_) => "required",
    };
    Ok(dsn.security.ways().into_iter().map(name).collect())
}

fn refusal(dsn: &str, variables: &[(&str, &str)]) -> (&'static str, String) {
    match ways(dsn, variables) {
        Ok(ways) => panic!("{dsn} {variables:?}: {ways:?}"),
        Err(error) => {
            assert!(!error.to_string().contains("S3cr3t"), "{error}");
            (error.field(), error.to_string())
        }
    }
}

fn custom() -> Option<Arc<dyn Connector>> {
    Some(Arc::new(Custom(NoTls)))
}

#[test]
fn parameters_are_checked_by_name_with_or_without_tls() {
    for (dsn, variables, field, text) in [
        ("host=h sslmode=maybe", &[][..], "sslmode", "unknown value; there are disable, allow, prefer"),
        ("host=h sslmode=", &[], "sslmode", "unknown value"),
        ("host=h", &[("PGSSLMODE", "Require")], "sslmode", "(from PGSSLMODE)"),
        ("host=h sslnegotiation=never", &[], "sslnegotiation", "postgres and direct"),
        ("host=h sslnegotiation=direct", &[], "sslnegotiation", "it takes require, verify-ca or verify-full"),
        ("host=h sslmode=allow sslnegotiation=direct", &[], "sslnegotiation", "sslmode=allow"),
        ("host=h", &[("PGSSLNEGOTIATION", "direct")], "sslnegotiation", "(from PGSSLNEGOTIATION)"),
        ("postgres://u:S3cr3t@h/d?sslmode=%00", &[], "sslmode", "unknown"),
        ("host=h channel_binding=", &[], "channel_binding", "disable, prefer and require"),
        ("host=h", &[("PGCHANNELBINDING", "strict")], "channel_binding", "(from PGCHANNELBINDING)"),
        ("host=h sslmode=disable channel_binding=require", &[], "channel_binding", "sslmode is disable"),
    ] {
        let (named, said) = refusal(dsn, variables);
        assert_eq!(named, field, "{dsn} {variables:?}: {said}");
        assert!(said.contains(text), "{dsn} {variables:?}: {said}");
    }
}

/// The system's answer may come from the network.
#[test]
fn nobody_is_asked_for_the_home_directory_unless_something_is_looked_for_there() {
    let asked = |options: &[(&str, &str)]| {
        let asked = std::cell::Cell::new(false);
        let environment = |name: &str| {
            asked.set(asked.get() || name == "HOME");
            None
        };
        Parameters::read(options, &environment);
        asked.get()
    };
    let files = [("sslrootcert", "a"), ("sslcert", "b"), ("sslkey", "c")];
    assert!(asked(&[]) && asked(&files[..2]) && asked(&files[1..]));
    assert!(!asked(&files) && !asked(&[("sslmode", "disable")]));
}

#[test]
fn what_disables_tls_disables_all_of_it() {
    for dsn in [
        "host=h sslmode=disable sslrootcert=/nonexistent sslcert=/nonexistent sslcrl=x sslnegotiation=direct",
        "postgres://h/d?sslrootcert=system&sslmode=disable&requiressl=1",
    ] {
        assert_eq!(ways(dsn, &[("PGSSLKEY", "/nonexistent")]).unwrap(), ["plain"], "{dsn}");
    }
    let variables = [("PGSSLMODE", "disable"), ("PGSSLROOTCERT", "system")];
    assert_eq!(ways("host=h", &variables).unwrap(), ["plain"]);
    assert_eq!(ways_with("host=h sslmode=disable", &[], custom()).unwrap(), ["plain"]);
}

#[test]
fn a_connector_of_the_applications_is_used_unless_somebody_says_otherwise() {
    for (dsn, variables, expected) in [
        ("host=h", &[][..], &["required"][..]),
        ("host=h sslmode=require sslnegotiation=direct", &[], &["direct"]),
        ("host=h sslmode=prefer", &[], &["preferred"]),
        ("host=h sslmode=allow", &[], &["plain", "required"]),
        ("host=h channel_binding=require", &[], &["required"]),
        ("host=h", &[("PGSSLMODE", "prefer"), ("PGSSLROOTCERT", "/nonexistent")], &["preferred"]),
        ("host=h sslmode=require", &[("PGSSLMODE", "prefer")], &["required"]),
        ("host=h sslrootcert=", &[("PGSSLMODE", ""), ("PGSSLCRL", "/nonexistent")], &["required"]),
    ] {
        assert_eq!(ways_with(dsn, variables, custom()).unwrap(), expected, "{dsn} {variables:?}");
    }
    for (dsn, variables, field, text) in [
        ("host=h sslmode=verify-full", &[][..], "sslmode", "its own affair"),
        ("host=h", &[("PGSSLMODE", "verify-ca")], "sslmode", "(from PGSSLMODE)"),
        ("host=h sslrootcert=/ca.pem", &[], "sslrootcert", "a connector of its own"),
        ("host=h sslkey=/key.pem", &[], "sslkey", "a connector of its own"),
        ("host=h sslcrl=/crl.pem", &[], "sslcrl", "a connector of its own"),
    ] {
        let error = ways_with(dsn, variables, custom()).unwrap_err();
        assert_eq!(error.field(), field, "{dsn}: {error}");
        assert!(error.to_string().contains(text), "{dsn}: {error}");
    }
}

#[cfg(not(feature = "tls"))]
mod without_the_feature {
    use super::*;

    #[test]
    fn tls_is_refused_never_dropped() {
        for (dsn, variables, field) in [
            ("postgres://u@h/d?sslmode=require", &[][..], "sslmode"),
            ("postgres://u@h/d?user=x&sslmode=verify%2Dfull", &[], "sslmode"),
            ("host=h sslmode=verify-ca", &[], "sslmode"),
            ("host=h sslmode = 'require'", &[], "sslmode"),
            ("host=/run sslmode=require", &[], "sslmode"),
            ("host=h sslmode=require sslnegotiation=direct", &[], "sslmode"),
            ("host=h sslrootcert=/ca.pem", &[], "sslrootcert"),
            ("host=h sslcrl=/ca.pem", &[], "sslcrl"),
            ("host=h requiressl=1", &[], "requiressl"),
            ("host=h channel_binding=require", &[], "channel_binding"),
            ("postgres://u@h/d?sslmode=prefer&sslrootcert=ca.pem", &[], "sslrootcert"),
            ("host=h", &[("PGSSLMODE", "require")], "sslmode"),
            ("host=h", &[("PGSSLROOTCERT", "system")], "sslrootcert"),
            ("host=h", &[("PGREQUIRESSL", "1")], "sslmode"),
            ("host=h", &[("PGCHANNELBINDING", "require")], "channel_binding"),
        ] {
            let (named, said) = refusal(dsn, variables);
            assert!(named == field && said.contains("the feature `tls`"), "{dsn} {variables:?}: {said}");
        }
    }

    #[test]
    fn what_only_prefers_it_goes_without() {
        for dsn in
            ["host=h", "host=h sslmode=prefer", "host=h sslmode=allow", "host=h sslnegotiation=postgres"]
        {
            let variables = [("PGSSLCERT", "/nonexistent"), ("PGSSLCRL", "/nonexistent")];
            assert_eq!(ways(dsn, &variables).unwrap(), ["plain"], "{dsn}");
        }
    }
}

#[test]
fn what_foreign_connectors_and_pools_verify_is_not_known() {
    use super::super::borrowed::BorrowedPool;
    use super::super::session::Source;
    assert_eq!(Custom(NoTls).verifies(), None);
    let manager = r2d2_postgres::PostgresConnectionManager::new("host=h".parse().unwrap(), NoTls);
    let pool = r2d2::Pool::builder().min_idle(Some(0)).build_unchecked(manager);
    assert_eq!(BorrowedPool(pool).verifies(), None);
}

#[cfg(feature = "tls")]
#[path = "feature_tests.rs"]
mod with_the_feature;
