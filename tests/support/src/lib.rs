//! Throw-away servers and a fault-injecting proxy.
