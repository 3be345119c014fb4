use super::*;
use postgres::config::{ChannelBinding, TargetSessionAttrs};

fn parse(dsn: &str) -> Dsn {
    Dsn::parse(dsn, &|_| None, None).unwrap_or_else(|error| panic!("{dsn}: {error}"))
}

fn complaint(dsn: &str) -> String {
    match Dsn::parse(dsn, &|_| None, None) {
        Ok(_) => panic!("{dsn} was accepted"),
        Err(error) => format!("{error} {error:?}"),
    }
}

fn places(dsn: &str) -> Vec<String> {
    parse(dsn).servers.iter().map(ToString::to_string).collect()
}

#[test]
fn both_forms_and_several_hosts() {
    assert_eq!(places("postgres://u@a:1,b/db?target_session_attrs=read-write"), ["a:1", "b:5432"]);
    assert_eq!(places("host=a,b port=1,2 user=u"), ["a:1", "b:2"]);
    assert_eq!(places("host=a,b port=7"), ["a:7", "b:7"]);
    assert_eq!(places("hostaddr=::1 port=7"), ["[::1]:7"]);
    assert_eq!(places("host=/run/pg port=7"), ["/run/pg/.s.PGSQL.7"]);
    assert_eq!(places("postgres://u@%2Frun%2Fpg/db"), ["/run/pg/.s.PGSQL.5432"]);
    assert_eq!(places("postgresql:///db?user=u&host=/run/pg"), ["/run/pg/.s.PGSQL.5432"]);
    assert_eq!(
        parse("host=name hostaddr=10.0.0.1").servers[0].host,
        Host::Address([10, 0, 0, 1].into(), "name".into())
    );
}

#[test]
fn the_rest_is_kept() {
    let dsn = "host=a user=u password='S3c\\'r t' dbname=d options='-c x=y' application_name=n \
               connect_timeout=4 sslmode='prefer' load_balance_hosts=random";
    let parsed = parse(dsn);
    let base = &parsed.base;
    assert_eq!((base.get_user(), base.get_dbname()), (Some("u"), Some("d")));
    assert_eq!(base.get_password(), Some(&b"S3c'r t"[..]));
    assert_eq!((base.get_options(), base.get_application_name()), (Some("-c x=y"), Some("n")));
    assert_eq!((parsed.connect_timeout, parsed.shuffled), (Some(Duration::from_secs(4)), true));
    assert!(base.get_hosts().is_empty() && base.get_ports().is_empty());
}

#[test]
fn what_the_string_says_about_sockets_is_kept() {
    let silent = parse("host=a").base;
    assert_eq!((silent.get_keepalives_interval(), silent.get_keepalives_retries()), (None, None));
    assert_eq!(silent.get_tcp_user_timeout(), None);
    let dsn = "host=a keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 tcp_user_timeout=8 \
               target_session_attrs=read-write";
    let base = parse(dsn).base;
    let second = Duration::from_secs(1);
    assert_eq!((base.get_keepalives(), base.get_keepalives_idle()), (true, 5 * second));
    assert_eq!((base.get_keepalives_interval(), base.get_keepalives_retries()), (Some(6 * second), Some(7)));
    assert_eq!(base.get_tcp_user_timeout(), Some(&(8 * second)));
    assert_eq!(base.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    assert!(!parse("host=a keepalives=0").base.get_keepalives());
    assert_eq!(base.get_channel_binding(), ChannelBinding::Prefer);
    assert_eq!(parse("host=a channel_binding=disable").base.get_channel_binding(), ChannelBinding::Disable);
}

#[test]
fn the_password_may_come_from_the_environment() {
    let env = |variable: &str| (variable == "PGPASSWORD").then(|| "env".into());
    let from_env = Dsn::parse("host=a", &env, None).unwrap();
    assert_eq!(from_env.base.get_password(), Some(&b"env"[..]));
    let own = Dsn::parse("postgres://u:own%40@a", &env, None).unwrap();
    assert_eq!(own.base.get_password(), Some(&b"own@"[..]));
}

#[test]
fn what_the_environment_insists_on_is_refused_not_ignored() {
    for (variable, value, field) in [
        ("PGREQUIREAUTH", "scram-sha-256", Some("require_auth")),
        ("PGREQUIREPEER", "postgres", Some("requirepeer")),
        ("PGGSSENCMODE", "require", Some("gssencmode")),
        ("PGREQUIREAUTH", "", None),
        ("PGGSSENCMODE", "prefer", None),
        ("PGGSSENCMODE", "disable", None),
    ] {
        let environment = |name: &str| (name == variable).then(|| value.into());
        let refused = Dsn::parse("host=h sslmode=disable", &environment, None).err();
        assert_eq!(refused.as_ref().map(PostgresConfigError::field), field, "{variable}={value}");
        if let Some(error) = refused {
            assert!(error.to_string().contains(&format!("not supported (from {variable})")), "{error}");
        }
    }
}

#[test]
fn plain_is_accepted_in_every_spelling() {
    for dsn in [
        "postgres://u@h/d?sslmode=disable",
        "postgres://u@h/d?sslmode=allow&connect_timeout=3",
        "postgres://u@h/d?connect_timeout=3&sslmode=prefer",
        "host=h sslmode=prefer user=u",
        "sslmode=disable sslrootcert='/a b' host=h",
        "host=h sslnegotiation=postgres",
        "host=h sslmode=require sslmode=disable",
    ] {
        assert_eq!(places(dsn), ["h:5432"], "{dsn}");
    }
}

#[test]
fn mistakes_are_named_and_passwords_are_not() {
    for (dsn, named) in [
        ("", "host"),
        ("user=u", "host"),
        ("host=", "host"),
        ("host=''", "host"),
        ("host=a,,b", "host is empty"),
        ("host=a,b hostaddr=10.0.0.1", "hostaddr"),
        ("host=a,b port=1,2,3", "port"),
        ("host=a port=S3cr3t", "port"),
        ("host=a target_session_attrs=S3cr3t", "target_session_attrs"),
        ("postgres://u:p@S3cr3t@h/d", "dsn"),
        ("postgres://u:p@S3cr3t/q@h/d", "dsn"),
        ("postgres://u:p@S3cr3t?q@h/d", "dsn"),
        ("postgres://u:p/S3cr3t@h/d", "dsn"),
        ("postgres://h/d?user=u&password=p@S3cr3t", "dsn"),
        ("host=a password=p S3cr3t", "dsn"),
        ("host=a password=p S3cr3t=x", "dsn"),
        ("host=a password='S3cr3t", "dsn"),
        ("S3cr3t", "dsn"),
        ("host=a password=p =S3cr3t", "dsn"),
        ("postgres://u:S3cr3t@h/d?password", "dsn"),
        ("postgres://u:S3cr3t@h:port/d", "port"),
        ("host=a user='\0'", "user"),
    ] {
        let complaint = complaint(dsn);
        assert!(complaint.contains(named), "{dsn}: {complaint}");
        assert!(!complaint.contains("S3cr3t"), "{complaint}");
    }
}

#[test]
fn a_parameter_of_others_is_named_unless_it_may_be_a_piece_of_a_password() {
    for name in ["gssencmode", "statement_timeout", "service"] {
        let said = complaint(&format!("postgres://u@h/d?{name}=x"));
        assert!(said.contains(name) && said.contains("not supported"), "{said}");
    }
    let said = complaint("postgres://u@h/d?password=a&S3cr3t=b");
    assert!(said.contains("a parameter that is not known") && !said.contains("S3cr3t"), "{said}");
    assert!(complaint("postgres://u@h:port/d").contains("dsn"));
}
