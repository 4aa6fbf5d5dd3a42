//! The picture on the virtual screen, read from the file that Xvfb keeps it in (XWD format).

use crate::error::{Context, Error, Result};
use crate::tiles::{PIXEL_BYTES, Tiles};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// An open framebuffer file and room for one copy of it.
#[derive(Debug)]
pub struct Screen {
    file: File,
    offset: u64,
    width: usize,
    height: usize,
    stride: usize,
    copy: Vec<u8>,
}

impl Screen {
    /// Opens the framebuffer file that `Xvfb -fbdir` made for screen 0.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join("Xvfb_screen0");
        let file = File::open(&path).context("open", path.display())?;
        let mut header = [0u8; 100];
        file.read_exact_at(&mut header, 0)
            .context("read", path.display())?;
        // The header is big-endian words whatever the machine is.
        let word = |i: usize| {
            u32::from_be_bytes(header[4 * i..4 * i + 4].try_into().expect("four bytes")) as usize
        };
        const COLOUR_BYTES: usize = 12;
        let (header_bytes, colours) = (word(0), word(19));
        let (width, height, bits, stride) = (word(4), word(5), word(11), word(12));
        if bits != 8 * PIXEL_BYTES || width == 0 || height == 0 {
            return Err(Error::new(
                "read",
                path.display(),
                format!("unexpected picture {width}x{height}, {bits} bits"),
            ));
        }
        let offset = (header_bytes + colours * COLOUR_BYTES) as u64;
        Ok(Self {
            file,
            offset,
            width,
            height,
            stride,
            copy: vec![0; stride * height],
        })
    }

    /// The tiles of the picture as it is now.
    pub fn tiles(&mut self) -> Result<Tiles> {
        self.file
            .read_exact_at(&mut self.copy, self.offset)
            .context("read", "framebuffer")?;
        Ok(Tiles::of(&self.copy, self.width, self.height, self.stride))
    }

    /// Writes the picture as a PPM file of this name, for a person to look at, into a directory, which is made where there
    /// is none. Returns its path.
    pub fn save(&mut self, directory: &Path, name: &str) -> Result<PathBuf> {
        fs::create_dir_all(directory).context("make", directory.display())?;
        let path = directory.join(format!("{name}.ppm"));
        self.file
            .read_exact_at(&mut self.copy, self.offset)
            .context("read", "framebuffer")?;
        let mut out = format!("P6\n{} {}\n255\n", self.width, self.height).into_bytes();
        for row in self.copy.chunks(self.stride) {
            for pixel in row[..self.width * PIXEL_BYTES].chunks(PIXEL_BYTES) {
                out.extend([pixel[2], pixel[1], pixel[0]]);
            }
        }
        fs::write(&path, out).context("write", path.display())?;
        Ok(path)
    }
}
