//! The report: one page that needs nothing else, and the data beside it.
//!
//! [`write`] makes `index.html` (figures inline, no network, light and dark, tables that sort), `data.json` (every sample),
//! `data.csv` (one row a cell) and the pictures for themselves, from a [`Document`] alone: the same data make the same page.

mod csv;
mod figures;
mod findings;
mod page;
mod plot;

pub use figures::{Figure, all as figures};
pub use findings::findings;

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::BenchError;
use crate::record::Document;

/// Writes the report about `document` into `dir`, which is made if it isn't there. Each file is put in place whole; the page
/// comes last.
pub fn write(document: &Document, dir: &Path) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::system(format!("write the report in {}", dir.display()), error);
    let figures = figures::all(document)?;
    let data = serde_json::to_vec(document).map_err(|error| failed(error.into()))?;
    let mut files: Vec<(String, Vec<u8>)> =
        vec![("data.json".to_owned(), data), ("data.csv".to_owned(), csv::text(document).into_bytes())];
    for figure in &figures {
        files.extend(figure.files(&document.host).into_iter().map(|(name, svg)| (name, svg.into_bytes())));
    }
    files.push(("index.html".to_owned(), page::html(document, &figures).into_bytes()));
    fs::create_dir_all(dir).map_err(failed)?;
    for (name, content) in files {
        let mut file = tempfile::Builder::new().prefix(".flashfork-").tempfile_in(dir).map_err(failed)?;
        file.write_all(&content).map_err(failed)?;
        let everyone_reads = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(everyone_reads).map_err(failed)?;
        file.persist(dir.join(name)).map_err(|error| failed(error.error))?;
    }
    Ok(())
}

/// Finds out whether a report can be written into `dir`, before anything is measured.
pub fn try_place(dir: &Path) -> Result<(), BenchError> {
    let failed = |error: std::io::Error| BenchError::system(format!("write a report in {}", dir.display()), error);
    fs::create_dir_all(dir).map_err(failed)?;
    tempfile::Builder::new().prefix(".flashfork-").tempfile_in(dir).map_err(failed)?;
    Ok(())
}
