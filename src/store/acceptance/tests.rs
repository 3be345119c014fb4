use super::*;

#[test]
fn the_memory_store_passes() {
    run_all(&MemoryStore::new());
}
