//! Packs a record file, of an experiment or of all, as docs/records has them.
//! Usage: pack RECORDS.json PACKED.json.bz2

use flashfork_measure::record::Document;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let mut paths = std::env::args_os().skip(1);
    let (Some(from), Some(to), None) = (paths.next(), paths.next(), paths.next()) else {
        return Err("usage: pack RECORDS.json PACKED.json.bz2".into());
    };
    Ok(Document::read(Path::new(&from))?.write_packed(Path::new(&to))?)
}
